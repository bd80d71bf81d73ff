package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A hook runs a function before a batch is sent to the server, so that a test
// decides what happens between two round trips of one call.
type hook struct {
	mu     sync.Mutex
	part   string // of a statement's text
	before func()
}

// once makes f run before the next batch with a statement that contains part.
func (h *hook) once(part string, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.part, h.before = part, f
}

func (h *hook) met() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.before == nil
}

func (h *hook) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	h.mu.Lock()
	f := h.before
	found := false
	for _, q := range data.Batch.QueuedQueries {
		found = found || strings.Contains(q.SQL, h.part)
	}
	if f == nil || !found {
		h.mu.Unlock()
		return ctx
	}
	h.before = nil
	h.mu.Unlock()
	f()
	return ctx
}

func (*hook) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*hook) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*hook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*hook) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// newHooked returns a store whose batches meet the hook, and another one, with
// its pool, on the same tables.
func newHooked(t *testing.T) (s, other *pgxstore.Store, pool *pgxpool.Pool, h *hook) {
	t.Helper()
	schema := "search_path=" + newSchema(t)
	pool = openPool(t, schema)
	other = open(t, pool)
	h = new(hook)
	cfg := openPool(t, schema).Config()
	cfg.ConnConfig.Tracer = h
	hooked, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hooked.Close)
	return open(t, hooked), other, pool, h
}

var (
	toRetry = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "by hand", Keep: time.Hour}
	forGood = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "by hand", Final: true, Keep: time.Hour}
)

// resolveNow looks and resolves.
func resolveNow(t *testing.T, s *pgxstore.Store, id onlyonce.ID, st onlyonce.Settlement) {
	t.Helper()
	r, err := s.Lookup(t.Context(), id)
	if err == nil {
		err = s.Resolve(t.Context(), r, st)
	}
	if err != nil {
		t.Errorf("resolve: %v", err)
	}
}

// unknownCommand makes a record of unknown outcome.
func unknownCommand(t *testing.T, s *pgxstore.Store, key string) onlyonce.Claim {
	t.Helper()
	c := claimOf(key)
	r, err := s.Claim(t.Context(), c)
	if err == nil {
		err = s.Settle(t.Context(), holdOf(r), onlyonce.Settlement{State: onlyonce.StateUnknown})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestResolve_AClaimThatLookedBeforeAResolutionLooksAgain(t *testing.T) {
	s, other, _, h := newHooked(t)
	c := unknownCommand(t, other, "k")
	resolveNow(t, other, c.ID, toRetry)
	h.once("created_at = CASE", func() { resolveNow(t, other, c.ID, forGood) })
	late := claimOf("k")
	late.RetryFailed = true
	r, err := s.Claim(t.Context(), late)
	if err != nil || r.Owner == late.Owner || !r.Final {
		t.Errorf("the claim got %+v and error %v, want the failure for good", r, err)
	}
	if !h.met() {
		t.Error("the claim took nothing over")
	}
}

func TestResolve_ATransactionThatLookedBeforeAResolutionLooksAgain(t *testing.T) {
	s, other, _, _ := newHooked(t)
	c := unknownCommand(t, other, "k")
	resolveNow(t, other, c.ID, toRetry)
	late := claimOf("k")
	late.RetryFailed = true
	runs := 0
	if _, err := s.RunTx(t.Context(), late, func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
		runs++
		resolveNow(t, other, c.ID, forGood)
		return onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}, nil
	}); runs != 1 {
		t.Errorf("it ran %d times, with error %v", runs, err)
	}
	if now, err := other.Lookup(t.Context(), c.ID); err != nil || !now.Final {
		t.Errorf("the record is %+v with error %v, want the failure for good", now, err)
	}
}

func TestResolve_ASettlementInATransactionIsLostToAResolution(t *testing.T) {
	s, other, _, _ := newHooked(t)
	c := claimOf("k")
	c.Lease = time.Millisecond
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	err = s.SettleTx(t.Context(), holdOf(r), func(context.Context, pgx.Tx) (onlyonce.Settlement, error) {
		for now, err := other.Lookup(t.Context(), c.ID); err == nil && now.LeaseLeft > 0; now, err = other.Lookup(t.Context(), c.ID) {
			time.Sleep(time.Millisecond)
		}
		resolveNow(t, other, c.ID, forGood)
		return onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}, nil
	})
	if !errors.Is(err, onlyonce.ErrLost) {
		t.Errorf("settle got error %v, want ErrLost", err)
	}
	if now, err := other.Lookup(t.Context(), c.ID); err != nil || !now.Final {
		t.Errorf("the record is %+v with error %v", now, err)
	}
}

// The person looked while the record was kept; the decision comes when it has
// expired.
func TestResolve_AResolutionThatComesAfterTheEndOfKeepChangesNothing(t *testing.T) {
	s, other, pool, h := newHooked(t)
	c := unknownCommand(t, other, "k")
	r, err := other.Lookup(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	h.once("result_ref = ", func() {
		if _, err := pool.Exec(t.Context(), "UPDATE onlyonce_records SET expires_at = settled_at"); err != nil {
			t.Error(err)
		}
	})
	if err := s.Resolve(t.Context(), r, forGood); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("resolve got error %v, want ErrNotFound", err)
	}
	if r, err := other.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("the record is there again: %+v, error %v", r, err)
	}
}
