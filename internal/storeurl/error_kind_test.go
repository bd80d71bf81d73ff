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
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/redis/rueidis"
)

func TestKindOf_AnErrorIsKnownByItsServersCodeHoweverItIsWrapped(t *testing.T) {
	for _, c := range []struct {
		err  error
		want promonce.ErrorKind
	}{
		{&pgconn.PgError{Code: "53100"}, promonce.KindFull},
		{&pgconn.PgError{Code: "25006"}, promonce.KindReadOnly},
		{&pgconn.PgError{Code: "XX001"}, promonce.KindCorrupt},
		{&pgconn.PgError{Code: "57P01"}, promonce.KindUnavailable},
		{&pgconn.PgError{Code: "42P01"}, promonce.KindOther},
		{&mysql.MySQLError{Number: 1021}, promonce.KindFull},
		{&mysql.MySQLError{Number: 1290}, promonce.KindReadOnly},
		{&mysql.MySQLError{Number: 1194}, promonce.KindCorrupt},
		{&mysql.MySQLError{Number: 1053}, promonce.KindUnavailable},
		{&mysql.MySQLError{Number: 1146}, promonce.KindOther},
		{&jetstream.APIError{Code: 503, Description: "maximum bytes exceeded"}, promonce.KindFull},
		{&jetstream.APIError{Code: 503, Description: "JetStream not available"}, promonce.KindUnavailable},
		{&jetstream.APIError{Code: 400, Description: "bad request"}, promonce.KindOther},
		{errors.New("etcdserver: mvcc: database space exceeded"), promonce.KindFull},
		{onlyonce.ErrCorrupt, promonce.KindCorrupt},
		{io.ErrUnexpectedEOF, promonce.KindUnavailable},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, promonce.KindUnavailable},
	} {
		for _, err := range []error{c.err, fmt.Errorf("store: claim: %w", errors.Join(onlyonce.ErrUnavailable, c.err))} {
			if got := KindOf(err); got != c.want {
				t.Errorf("%v is %s, want %s", err, got, c.want)
			}
		}
	}
}

func TestKindOf_TheErrorsOfRedisAreKnown(t *testing.T) {
	for option, want := range map[string]promonce.ErrorKind{"--maxmemory 1": promonce.KindFull, "--min-replicas-to-write 1": promonce.KindUnavailable} {
		s, err := redisserver.Start(strings.Fields(option)...)
		redisserver.Require(t, err)
		t.Cleanup(func() { _ = s.Close() })
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
	for parameter, want := range map[string]promonce.ErrorKind{
		"&_pragma=max_page_count(2)": promonce.KindFull,
		"&_pragma=query_only(1)":     promonce.KindReadOnly,
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
