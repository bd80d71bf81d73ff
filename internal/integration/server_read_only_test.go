package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A failover connects to a server whose transactions can write, or only read after it was demoted.
type failover struct {
	driver.Connector
	former  driver.Connector
	demoted atomic.Bool
}

func (f *failover) Connect(ctx context.Context) (driver.Conn, error) {
	if f.demoted.Load() {
		return f.former.Connect(ctx)
	}
	return f.Connector.Connect(ctx)
}

// newFailover returns a pool that connects to a database by one of two DSNs.
func newFailover(t *testing.T, name, dsn, readOnly string) (*failover, *sql.DB) {
	t.Helper()
	f := &failover{}
	opener := openPool(t, name, dsn).Driver().(driver.DriverContext)
	for at, dsn := range map[*driver.Connector]string{&f.Connector: dsn, &f.former: readOnly} {
		c, err := opener.OpenConnector(dsn)
		if err != nil {
			t.Fatal(err)
		}
		*at = c
	}
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	return f, db
}

// A pool keeps its connections to a server that can no longer be written, although new ones would
// lead to the primary.
func TestFailover_APoolLeavesAServerThatCanNoLongerBeWritten(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (*failover, *sql.DB){
		"PostgreSQL": func(t *testing.T) (*failover, *sql.DB) {
			schema := newPostgresSchema(t)
			schema.open(t)
			return newFailover(t, "pgx", schema.with(t), schema.with(t, "default_transaction_read_only=on"))
		},
		"MySQL": func(t *testing.T) (*failover, *sql.DB) {
			d := newMySQLDatabase(t)
			d.open(t)
			demoted := d.config(t)
			demoted.Params = map[string]string{"tx_read_only": "1"}
			return newFailover(t, "mysql", d.config(t).FormatDSN(), demoted.FormatDSN())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, db := open(t)
			s := openOn(t, db)
			for call, do := range map[string]func(*sqlstore.Store) error{
				"Lease": func(s *sqlstore.Store) error { // although no message waits on the former primary
					_, err := s.Outbox().Lease(t.Context(), "owner", time.Nanosecond, 1)
					return err
				},
				"Claim": func(s *sqlstore.Store) error {
					_, err := s.Claim(t.Context(), serverClaim("claimed"))
					return err
				},
				"RunTx": func(s *sqlstore.Store) error {
					_, err := s.RunTx(t.Context(), serverClaim("run"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
						return done("made"), nil
					})
					return err
				},
			} {
				f.demoted.Store(true)
				db.SetMaxIdleConns(0)
				db.SetMaxIdleConns(2)
				if err := do(s); !errors.Is(err, onlyonce.ErrUnavailable) {
					t.Errorf("%s on a server that can't be written: %v", call, err)
				}
				f.demoted.Store(false)
				for end := time.Now().Add(answerLimit); ; time.Sleep(10 * time.Millisecond) {
					err := do(s)
					if err == nil {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("%s: the pool still has its old connections: %v", call, err)
					}
				}
			}
		})
	}
}
