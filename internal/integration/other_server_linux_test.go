package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A movable is a store whose connections may move to another server.
type movable struct {
	rowStore
	onlyonce.Auditor
	runTx    func(key string, fn func()) error
	settleTx func(h onlyonce.Hold, fn func()) error
	inTx     func(f func(onlyonce.Store) error) error // in a transaction of the caller's
	append   func() error                             // a message to the outbox
	box      outbox.Queue
}

type movableTx[TX any] interface {
	rowStore
	onlyonce.Auditor
	onlyonce.TxStore[TX]
	WithTx(TX) onlyonce.Store
}

// newMovable returns a store whose transactions begin begins.
func newMovable[TX any](s movableTx[TX], begin func() (TX, func() error, error), append func(TX) error, box outbox.Queue) movable {
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
		settleTx: func(h onlyonce.Hold, fn func()) error {
			return s.SettleTx(context.Background(), h, func(context.Context, TX) (onlyonce.Settlement, error) {
				fn()
				return done("made"), nil
			})
		},
		inTx:   func(f func(onlyonce.Store) error) error { return inTx(func(tx TX) error { return f(s.WithTx(tx)) }) },
		append: func() error { return inTx(append) },
		box:    box,
	}
}

// hold claims a new command.
func (s *movable) hold(t *testing.T, c onlyonce.Claim) onlyonce.Hold {
	t.Helper()
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
}

// rejected tests that every call fails with ErrOtherCluster once it reaches the other server.
// The commands settled and hold are on the store's own server; those whose keys begin with name
// and " new" are new.
func (s *movable) rejected(t *testing.T, name string, settled onlyonce.ID, hold onlyonce.Hold) {
	t.Helper()
	var ran atomic.Bool
	run := func() { ran.Store(true) }
	claimed := func(key string) func() error {
		return func() error { _, err := s.Claim(t.Context(), serverClaim(key)); return err }
	}
	for what, call := range map[string]func() error{
		"claim":     claimed(settled.Key),
		"new claim": claimed(name + " new"),
		"new claims": func() error {
			return s.together(func(i int) error { return claimed(fmt.Sprint(name, " new ", i))() })
		},
		"claim in tx": func() error {
			return s.inTx(func(s onlyonce.Store) error { _, err := s.Claim(t.Context(), serverClaim(name+" new")); return err })
		},
		"settle in tx": func() error {
			return s.inTx(func(s onlyonce.Store) error { return s.Settle(t.Context(), hold, done("made")) })
		},
		"lookup in tx": func() error {
			return s.inTx(func(s onlyonce.Store) error { _, err := s.Lookup(t.Context(), settled); return err })
		},
		"settle":       func() error { return s.Settle(t.Context(), hold, done("made")) },
		"settlements":  func() error { return s.together(func(int) error { return s.Settle(t.Context(), hold, done("made")) }) },
		"release":      func() error { return s.Settle(t.Context(), hold, onlyonce.Settlement{}) },
		"renew":        func() error { return s.Renew(t.Context(), hold, time.Minute, nil) },
		"renew a step": func() error { return s.Renew(t.Context(), hold, time.Minute, map[string][]byte{"s": nil}) },
		"lookup":       func() error { _, err := s.Lookup(t.Context(), settled); return err },
		"count":        func() error { _, _, err := s.Unresolved(t.Context()); return err },
		"resolve": func() error {
			return s.Resolve(t.Context(), onlyonce.Record{ID: settled, State: onlyonce.StateCompleted, Fence: hold.Fence}, done("made"))
		},
		"resolve with audit": func() error {
			return s.ResolveAudited(t.Context(), onlyonce.Record{ID: settled, State: onlyonce.StateCompleted, Fence: hold.Fence}, done("made"), onlyonce.Decision{Actor: "a", Reason: "r"})
		},
		"audit trail": func() error { _, err := s.AuditTrail(t.Context(), settled); return err },
		"purge":       func() error { _, err := s.Purge(t.Context(), 10); return err },
		"run in a tx": func() error { return s.runTx(name+" new", run) },
		"settle a tx": func() error { return s.settleTx(hold, run) },
		"append":      s.append,
		"lease":       func() error { _, err := s.box.Lease(t.Context(), "relay", time.Minute, 10); return err },
		"renew lease": func() error { return s.box.Renew(t.Context(), "relay", time.Minute, 1) },
		"published": func() error {
			return s.box.Settle(t.Context(), "relay", []outbox.Verdict{{Seq: 1, State: outbox.StatePublished}})
		},
		"lag":              func() error { _, err := s.box.Lag(t.Context()); return err },
		"parked":           func() error { _, err := s.box.Parked(t.Context(), 0, 10); return err },
		"requeue":          func() error { _, err := s.box.Requeue(t.Context(), 1); return err },
		"discard":          func() error { _, err := s.box.Discard(t.Context(), 1); return err },
		"purge box":        func() error { _, err := s.box.Purge(t.Context(), 10); return err },
		"list":             func() error { return listErr(t, s, onlyonce.Filter{}) },
		"list of a tenant": func() error { return listErr(t, s, onlyonce.Filter{Tenant: settled.Tenant}) },
	} {
		eventually(t, what+" reaches the other server", func() bool {
			err := call()
			if err == nil || errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) || errors.Is(err, outbox.ErrLost) {
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
}

// together makes so many calls at the same time that they are written in groups. It returns an
// error that is ErrOtherCluster only if every one is.
func (*movable) together(call func(i int) error) error {
	all := make([]error, 64)
	crowd(len(all), func(i int) { all[i] = call(i) })
	for _, err := range all {
		if !errors.Is(err, sqlstore.ErrOtherCluster) {
			return err
		}
	}
	return all[0]
}

func listErr(t *testing.T, s onlyonce.Lister, f onlyonce.Filter) error {
	for _, err := range s.List(t.Context(), f) {
		if err != nil {
			return err
		}
	}
	return nil
}

// empty tests that nothing was written to another store.
func empty(t *testing.T, db *sql.DB) {
	t.Helper()
	var rows int
	eventually(t, "the other server responds", func() bool { // it may have been started again
		return db.QueryRow("SELECT (SELECT count(*) FROM onlyonce_records) + (SELECT count(*) FROM onlyonce_outbox) + (SELECT count(*) FROM onlyonce_audit)").Scan(&rows) == nil
	})
	if rows > 0 {
		t.Errorf("the other server has %d rows", rows)
	}
}

// worksOn waits until the store's own server responds, where the hold settles, and checks that
// repeats of the commands get their response.
func (s *movable) worksOn(t *testing.T, hold onlyonce.Hold, ids ...onlyonce.ID) {
	t.Helper()
	eventually(t, "the store's own server responds", func() bool {
		err := s.Settle(t.Context(), hold, done("made"))
		if errors.Is(err, onlyonce.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
	for _, id := range ids {
		if r, err := s.Claim(t.Context(), serverClaim(id.Key)); err != nil || string(r.Result.Body) != "made" {
			t.Errorf("a repeat of %s got %+v, error %v", id.Key, r, err)
		}
	}
}
