package storeurl

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/redis/rueidis"
)

func TestKindOf_AnErrorIsKnownByItsServersCodeHoweverItIsWrapped(t *testing.T) {
	for _, c := range []struct {
		err  error
		want ErrorKind
	}{
		{&pgconn.PgError{Code: "53100"}, Full},
		{&pgconn.PgError{Code: "25006"}, ReadOnly},
		{&pgconn.PgError{Code: "XX001"}, Corrupt},
		{&pgconn.PgError{Code: "57P01"}, Unavailable},
		{&pgconn.PgError{Code: "42P01"}, OtherError},
		{&mysql.MySQLError{Number: 1021}, Full},
		{&mysql.MySQLError{Number: 1290}, ReadOnly},
		{&mysql.MySQLError{Number: 1194}, Corrupt},
		{&mysql.MySQLError{Number: 1053}, Unavailable},
		{&mysql.MySQLError{Number: 1146}, OtherError},
		{&jetstream.APIError{Code: 503, Description: "maximum bytes exceeded"}, Full},
		{&jetstream.APIError{Code: 503, Description: "JetStream not available"}, Unavailable},
		{&jetstream.APIError{Code: 400, Description: "bad request"}, OtherError},
		{errors.New("etcdserver: mvcc: database space exceeded"), Full},
		{onlyonce.ErrCorrupt, Corrupt},
		{io.ErrUnexpectedEOF, Unavailable},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, Unavailable},
	} {
		for _, err := range []error{c.err, fmt.Errorf("store: claim: %w", errors.Join(onlyonce.ErrUnavailable, c.err))} {
			if got := KindOf(err); got != c.want {
				t.Errorf("%v is %s, want %s", err, got, c.want)
			}
		}
	}
}

func TestKindOf_TheErrorsOfRedisAreKnown(t *testing.T) {
	for option, want := range map[string]ErrorKind{"--maxmemory 1": Full, "--min-replicas-to-write 1": Unavailable} {
		s := cmdtest.StartRedis(t, strings.Fields(option)...)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Address()}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		err = client.Do(t.Context(), client.B().Set().Key("k").Value("v").Build()).Error()
		if err == nil || KindOf(fmt.Errorf("redisstore: claim: %w", err)) != want {
			t.Errorf("%v is not %s", err, want)
		}
	}
}

func TestKindOf_TheErrorsOfAFileAreKnown(t *testing.T) {
	u := URL{Engine: SQLite, Path: filepath.Join(t.TempDir(), "a.db")}
	made, err := u.OpenDB(t.Context(), true)
	if err == nil {
		_, err = made.Exec("CREATE TABLE t (x); PRAGMA wal_checkpoint(TRUNCATE)")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	for parameter, want := range map[string]ErrorKind{
		"&_pragma=max_page_count(2)": Full,
		"&_pragma=query_only(1)":     ReadOnly,
	} {
		db, err := sql.Open("sqlite", u.DSN(false)+parameter)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Exec("INSERT INTO t VALUES (zeroblob(100000))")
		if err == nil || KindOf(err) != want {
			t.Errorf("%v is not %s", err, want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
