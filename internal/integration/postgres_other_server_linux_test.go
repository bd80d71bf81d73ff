package integration

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A movable is a store whose connections may move to another server.
type movable struct {
	rowStore
	onlyonce.Auditor
	runTx  func(key string, fn func()) error
	inTx   func(f func(onlyonce.Store) error) error // in a transaction of the caller's
	append func() error                             // a message to the outbox
	lag    func() error                             // of the outbox
}

type movableTx[TX any] interface {
	rowStore
	onlyonce.Auditor
	onlyonce.TxStore[TX]
	WithTx(TX) onlyonce.Store
}

// newMovable returns a store whose transactions begin begins.
func newMovable[TX any](s movableTx[TX], begin func() (TX, func() error, error), append func(TX) error, lag func() error) movable {
	inTx := func(f func(TX) error) error {
		tx, rollback, err := begin()
		if err != nil {
			return err
		}
		return errors.Join(f(tx), rollback())
	}
	return movable{
		rowStore: s, Auditor: s,
		runTx: func(key string, fn func()) error {
			_, err := s.RunTx(context.Background(), serverClaim(key), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
				fn()
				return done("made"), nil
			})
			return err
		},
		inTx:   func(f func(onlyonce.Store) error) error { return inTx(func(tx TX) error { return f(s.WithTx(tx)) }) },
		append: func() error { return inTx(append) },
		lag:    lag,
	}
}

var movables = map[string]func(t *testing.T, dsn string) movable{
	"sqlstore": func(t *testing.T, dsn string) movable {
		db := openPool(t, "pgx", dsn)
		s := openOn(t, db)
		begin := func() (tx *sql.Tx, rollback func() error, err error) {
			tx, err = db.BeginTx(t.Context(), nil)
			return tx, tx.Rollback, err
		}
		return newMovable(s, begin, func(tx *sql.Tx) error { return s.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"}) },
			func() error { _, err := s.Outbox().Lag(t.Context()); return err })
	},
	"pgxstore": func(t *testing.T, dsn string) movable {
		s, pool := openPgx(t, ownDatabase{dsn: dsn})
		begin := func() (tx pgx.Tx, rollback func() error, err error) {
			tx, err = pool.Begin(t.Context())
			return tx, func() error { return tx.Rollback(t.Context()) }, err
		}
		return newMovable(s, begin, func(tx pgx.Tx) error { return s.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"}) },
			func() error { _, err := s.Outbox().Lag(t.Context()); return err })
	},
}

// The URL names two servers that do not belong together. Only the first one responds when the
// store is opened, then only the second one, and then only the first one again.
func TestPostgreSQL_NothingRunsOnAServerThatDoesNotHaveTheStore(t *testing.T) {
	t.Parallel()
	a, b := newOwnServer(t, faults.PostgreSQL), newOwnServer(t, faults.PostgreSQL)
	d := a.newDatabase(t)
	d.migrated(t)
	if _, err := b.admin.Exec("CREATE DATABASE " + databaseOf(t, d)); err != nil {
		t.Fatal(err)
	}
	other := ownDatabase{driver: d.driver, dsn: strings.Replace(d.dsn, a.Address(), b.Address(), 1)}
	onOther := other.migrated(t)
	onOther.SetMaxIdleConns(0) // the server is killed between the stores
	dsn := strings.Replace(d.dsn, a.Address(), a.Address()+","+b.Address(), 1)
	for name, open := range movables {
		t.Run(name, func(t *testing.T) {
			s := open(t, dsn)
			settled, held := serverClaim(name+" settled"), serverClaim(name+" held")
			claim := func(c onlyonce.Claim) onlyonce.Hold {
				r, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			}
			if err := s.Settle(t.Context(), claim(settled), done("made")); err != nil {
				t.Fatal(err)
			}
			hold := claim(held)

			inDoubt, killed := make(chan error, 1), make(chan struct{})
			kill := sync.OnceFunc(func() { a.Kill(); close(killed) })
			go func() { inDoubt <- s.runTx(name+" in doubt", kill) }()
			<-killed
			var ran atomic.Bool
			claimed := func(key string) func() error {
				return func() error { _, err := s.Claim(t.Context(), serverClaim(key)); return err }
			}
			for what, call := range map[string]func() error{
				"claim":     claimed(settled.ID.Key),
				"new claim": claimed(name + " new"),
				"claim in tx": func() error {
					return s.inTx(func(s onlyonce.Store) error { _, err := s.Claim(t.Context(), serverClaim(name+" new")); return err })
				},
				"settle in tx": func() error {
					return s.inTx(func(s onlyonce.Store) error { return s.Settle(t.Context(), hold, done("made")) })
				},
				"settle":       func() error { return s.Settle(t.Context(), hold, done("made")) },
				"release":      func() error { return s.Settle(t.Context(), hold, onlyonce.Settlement{}) },
				"renew":        func() error { return s.Renew(t.Context(), hold, time.Minute, nil) },
				"renew a step": func() error { return s.Renew(t.Context(), hold, time.Minute, map[string][]byte{"s": nil}) },
				"lookup":       func() error { _, err := s.Lookup(t.Context(), settled.ID); return err },
				"count":        func() error { _, _, err := s.Unresolved(t.Context()); return err },
				"audit trail":  func() error { _, err := s.AuditTrail(t.Context(), settled.ID); return err },
				"purge":        func() error { _, err := s.Purge(t.Context(), 10); return err },
				"run in a tx":  func() error { return s.runTx(name+" new", func() { ran.Store(true) }) },
				"append":       s.append,
				"lag":          s.lag,
				"list": func() error {
					for _, err := range s.List(t.Context(), onlyonce.Filter{}) {
						if err != nil {
							return err
						}
					}
					return nil
				},
			} {
				eventually(t, what+" reaches the other server", func() bool {
					err := call()
					if err == nil || errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) {
						t.Fatalf("%s on the other server returned %v", what, err)
					}
					if errors.Is(err, sqlstore.ErrOtherCluster) != errors.Is(err, pgxstore.ErrOtherCluster) {
						t.Errorf("%s: only one of the stores has the error %v", what, err)
					}
					return errors.Is(err, sqlstore.ErrOtherCluster)
				})
			}
			if ran.Load() {
				t.Error("a function ran on the other server")
			}
			var rows int
			if err := onOther.QueryRow("SELECT (SELECT count(*) FROM onlyonce_records) + (SELECT count(*) FROM onlyonce_outbox)").Scan(&rows); err != nil || rows > 0 {
				t.Errorf("the other server has %d rows, error %v", rows, err)
			}
			select {
			case err := <-inDoubt:
				t.Errorf("a transaction that the store's own server may have committed: %v", err)
			default:
			}

			b.Kill()
			a.start(t)
			if err := <-inDoubt; err == nil {
				t.Error("a transaction whose server was killed before its end was committed")
			}
			eventually(t, "the store's own server responds", func() bool {
				err := s.Settle(t.Context(), hold, done("made"))
				if errors.Is(err, onlyonce.ErrLost) {
					t.Fatal(err)
				}
				return err == nil
			})
			for _, id := range []onlyonce.ID{settled.ID, held.ID} {
				if r, err := s.Claim(t.Context(), serverClaim(id.Key)); err != nil || string(r.Result.Body) != "made" {
					t.Errorf("a repeat of %s got %+v, error %v", id.Key, r, err)
				}
			}
			if r, err := s.Claim(t.Context(), serverClaim(name+" new")); err != nil || r.Attempt != 1 {
				t.Errorf("the claim that was rejected got %+v, error %v", r, err)
			}
			b.start(t)
		})
	}
}

// The primary is gone, and its standby has not been promoted.
func TestPostgreSQL_AWriteOnAStandbyFailsAndWritesNothing(t *testing.T) {
	t.Parallel()
	primary := newOwnServer(t, faults.PostgreSQL)
	d := primary.newDatabase(t)
	d.migrated(t)
	standby, err := faults.NewStandby(primary.Server, primary.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	dsn := strings.Replace(d.dsn, primary.Address(), primary.Address()+","+standby.Address(), 1)
	stores := make(map[string]movable)
	holds := make(map[string]onlyonce.Hold)
	for name, open := range movables {
		s, c := open(t, dsn), serverClaim(name)
		r, err := s.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		stores[name], holds[name] = s, onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
	}
	eventually(t, "the standby has the claims", func() bool {
		_, err := standby.Admin.Exec("SELECT 1")
		if err != nil {
			t.Fatal(err)
		}
		var behind bool
		if err := primary.admin.QueryRow("SELECT bool_or(replay_lsn < pg_current_wal_lsn()) FROM pg_stat_replication").Scan(&behind); err != nil {
			t.Fatal(err)
		}
		return !behind
	})
	primary.Kill()
	for name, s := range stores {
		for what, call := range map[string]func() error{
			"claim":  func() error { _, err := s.Claim(t.Context(), serverClaim(name+" new")); return err },
			"settle": func() error { return s.Settle(t.Context(), holds[name], done("made")) },
			"renew":  func() error { return s.Renew(t.Context(), holds[name], time.Minute, nil) },
			"RunTx":  func() error { return s.runTx(name+" new", func() {}) },
		} {
			eventually(t, name+": "+what+" reaches the standby", func() bool {
				err := call()
				if err == nil || errors.Is(err, onlyonce.ErrUnknown) || errors.Is(err, onlyonce.ErrLost) {
					t.Fatalf("%s: %s on a standby returned %v", name, what, err)
				}
				return errors.Is(err, onlyonce.ErrUnavailable) && strings.Contains(err.Error(), "connect to the primary")
			})
		}
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	for name, s := range stores {
		eventually(t, name+": the new primary settles", func() bool { return s.Settle(t.Context(), holds[name], done("made")) == nil })
		if r, err := s.Claim(t.Context(), serverClaim(name+" new")); err != nil || r.Attempt != 1 {
			t.Errorf("%s: a claim got %+v, error %v", name, r, err)
		}
	}
}
