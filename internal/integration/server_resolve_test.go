package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// onHookedServers runs a test with a store whose statements meet a hook, and
// with another store, and its pool, on the same tables.
func onHookedServers(t *testing.T, f func(t *testing.T, s, other *sqlstore.Store, db *sql.DB, h *hook)) {
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		schema := newPostgresSchema(t)
		other, db := schema.open(t)
		hooked, h := hookedPostgres(t, schema)
		f(t, openOn(t, hooked), other, db, h)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		d := newMySQLDatabase(t)
		other, db := d.open(t)
		hooked, h := hookedMySQL(t, d)
		f(t, openOn(t, hooked), other, db, h)
	})
}

// Parts of the statements that change a record which a call has looked at.
const (
	takeOver   = "created_at = "
	resolution = "result_ref = "
)

var (
	toRetry = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "by hand", Keep: time.Hour}
	forGood = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "by hand", Final: true, Keep: time.Hour}
)

// resolveNow looks and resolves.
func resolveNow(t *testing.T, s *sqlstore.Store, id onlyonce.ID, st onlyonce.Settlement) {
	t.Helper()
	r, err := s.Lookup(t.Context(), id)
	if err != nil {
		t.Error(err)
		return
	}
	if err := s.Resolve(t.Context(), r, st); err != nil {
		t.Errorf("resolve: %v", err)
	}
}

// unknownCommand makes a record of unknown outcome.
func unknownCommand(t *testing.T, s *sqlstore.Store, key string, keep time.Duration) onlyonce.Claim {
	t.Helper()
	c := serverClaim(key)
	r, err := s.Claim(t.Context(), c)
	if err == nil {
		err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateUnknown, Keep: keep})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestResolve_AClaimThatLookedBeforeAResolutionLooksAgain(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, h *hook) {
		c := unknownCommand(t, other, "k", 0)
		resolveNow(t, other, c.ID, toRetry)
		h.once(takeOver, func() { resolveNow(t, other, c.ID, forGood) })
		late := serverClaim("k")
		late.RetryFailed = true
		r, err := s.Claim(t.Context(), late)
		if err != nil || r.Owner == late.Owner || !r.Final {
			t.Errorf("the claim got %+v and error %v, want the failure for good", r, err)
		}
		if !h.met() {
			t.Error("the claim took nothing over")
		}
	})
}

func TestResolve_AClaimThatLookedBeforeADeletionByHandLooksAgain(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, h *hook) {
		c := unknownCommand(t, other, "k", 0)
		resolveNow(t, other, c.ID, onlyonce.Settlement{}) // a row is left for its fence
		h.once(takeOver, func() {
			unknownCommand(t, other, "k", 0)
			resolveNow(t, other, c.ID, onlyonce.Settlement{})
		})
		late := serverClaim("k")
		r, err := s.Claim(t.Context(), late)
		if err != nil || r.Owner != late.Owner || r.Attempt != 1 {
			t.Errorf("the claim got %+v and error %v", r, err)
		}
		if now, err := other.Lookup(t.Context(), c.ID); err != nil || now.Fence != r.Fence {
			t.Errorf("the record is %+v with error %v, and the claim got %+v", now, err, r)
		}
	})
}

func TestResolve_ATransactionThatLookedBeforeAResolutionLooksAgain(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, _ *hook) {
		c := unknownCommand(t, other, "k", 0)
		resolveNow(t, other, c.ID, toRetry)
		late := serverClaim("k")
		late.RetryFailed = true
		runs := 0
		r, err := s.RunTx(t.Context(), late, func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			runs++
			resolveNow(t, other, c.ID, forGood)
			return done("made"), nil
		})
		if err != nil || r.Owner == late.Owner || !r.Final || runs != 1 {
			t.Errorf("after %d runs, got %+v and error %v, want the failure for good", runs, r, err)
		}
	})
}

func TestResolve_ASettlementInATransactionIsLostToAResolution(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, _ *hook) {
		c := serverClaim("k")
		c.Lease = time.Millisecond
		r, err := s.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		err = s.SettleTx(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, func(context.Context, *sql.Tx) (onlyonce.Settlement, error) {
			eventually(t, "the lease lapses", func() bool {
				now, err := other.Lookup(t.Context(), c.ID)
				return err == nil && now.LeaseLeft <= 0
			})
			resolveNow(t, other, c.ID, forGood)
			return done("made"), nil
		})
		if !errors.Is(err, onlyonce.ErrLost) {
			t.Errorf("settle got error %v, want ErrLost", err)
		}
		if now, err := other.Lookup(t.Context(), c.ID); err != nil || !now.Final {
			t.Errorf("the record is %+v with error %v", now, err)
		}
	})
}

// The person looked while the record was kept; the decision comes when it has
// expired and a claim has looked at it already.
func TestResolve_AResolutionThatComesAfterTheEndOfKeepChangesNothing(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, db *sql.DB, h *hook) {
		c := unknownCommand(t, other, "k", time.Hour)
		r, err := other.Lookup(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		h.once(resolution, func() {
			if _, err := db.Exec("UPDATE onlyonce_records SET expires_at = settled_at"); err != nil {
				t.Error(err)
			}
		})
		if err := s.Resolve(t.Context(), r, forGood); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("resolve got error %v, want ErrNotFound", err)
		}
		if r, err := other.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("the record is there again: %+v, error %v", r, err)
		}
	})
}
