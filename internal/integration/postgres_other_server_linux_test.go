package integration

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/outbox"
)

var movables = map[string]func(t *testing.T, dsn string) movable{
	"sqlstore": func(t *testing.T, dsn string) movable {
		db := openPool(t, "pgx", dsn)
		s := openOn(t, db)
		begin := func() (tx *sql.Tx, rollback func() error, err error) {
			tx, err = db.BeginTx(t.Context(), nil)
			return tx, tx.Rollback, err
		}
		return newMovable(s, begin, func(tx *sql.Tx) error { return s.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"}) },
			s.Outbox())
	},
	"pgxstore": func(t *testing.T, dsn string) movable {
		s, pool := openPgx(t, ownDatabase{dsn: dsn})
		begin := func() (tx pgx.Tx, rollback func() error, err error) {
			tx, err = pool.Begin(t.Context())
			return tx, func() error { return tx.Rollback(t.Context()) }, err
		}
		return newMovable(s, begin, func(tx pgx.Tx) error { return s.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"}) },
			s.Outbox())
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
			if err := s.Settle(t.Context(), s.hold(t, settled), done("made")); err != nil {
				t.Fatal(err)
			}
			hold := s.hold(t, held)

			inDoubt, killed := make(chan error, 1), make(chan struct{})
			kill := sync.OnceFunc(func() { a.Kill(); close(killed) })
			go func() { inDoubt <- s.runTx(name+" in doubt", kill) }()
			<-killed
			s.rejected(t, name, settled.ID, hold)
			empty(t, onOther)
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
			s.worksOn(t, hold, settled.ID, held.ID)
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
		if err := primary.admin.QueryRow("SELECT coalesce(bool_or(replay_lsn < pg_current_wal_lsn()), true) FROM pg_stat_replication").Scan(&behind); err != nil {
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
