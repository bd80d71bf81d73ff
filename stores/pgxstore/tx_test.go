package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

var (
	errOwn = errors.New("an error of the application")
	failed = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no stock", Keep: completed.Keep}
)

func TestTx_ATransactionBeginsOnAnotherConnectionIfThePoolsWasCut(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	own(t, pool)
	for n := range 5 {
		if _, err := s.RunTx(t.Context(), claimOf(fmt.Sprint(n)), inserts("k")); err != nil {
			t.Fatalf("run after %d cuts: %v", n, err)
		}
		if n := rows(t, pool) - n; n != 1 {
			t.Errorf("%d rows of a command", n)
		}
		cut(t, pool)
	}
}

// cutting returns a function that loses its connection and then fails.
func cutting(t *testing.T, s onlyonce.TxStore[pgx.Tx], cut func()) map[string]func(c onlyonce.Claim) error {
	return map[string]func(c onlyonce.Claim) error{
		"run": func(c onlyonce.Claim) error {
			_, err := s.RunTx(t.Context(), c, func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				cut()
				return failed, errOwn
			})
			return err
		},
		"settle": func(c onlyonce.Claim) error {
			return s.SettleTx(t.Context(), holdOf(mustClaim(t, s, c)), func(context.Context, pgx.Tx) (onlyonce.Settlement, error) {
				cut()
				return failed, errOwn
			})
		},
	}
}

func TestTx_TheFailureOfAFunctionWhoseConnectionBrokeIsRecorded(t *testing.T) {
	pool := newPool(t, "pool=1")
	s := open(t, pool)
	for name, call := range cutting(t, s, func() { cut(t, pool) }) {
		t.Run(name, func(t *testing.T) {
			c := claimOf(name)
			if err := call(c); err != errOwn {
				t.Errorf("got error %v, want the function's itself", err)
			}
			if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateFailed || r.Owner != c.Owner {
				t.Errorf("recorded: %+v, %v", r, err)
			}
		})
	}
}

// With one connection, a store that asks for a second one while it holds the first
// waits for itself.
func TestTx_ALostCommitIsFoundWithTheOnlyConnectionOfAPool(t *testing.T) {
	direct := newPool(t)
	open(t, direct)
	own(t, direct)
	p := newProxy(t, direct)
	s := p.open(t, openPool(t, "pool=1", "search_path="+direct.Config().ConnConfig.RuntimeParams["search_path"]))
	for _, arrives := range []bool{true, false} {
		c := claimOf(fmt.Sprint(arrives))
		p.loseCommit(arrives, func() {})
		if r, err := s.RunTx(t.Context(), c, inserts("k")); (err == nil) != arrives || errors.Is(err, onlyonce.ErrUnknown) {
			t.Errorf("after a commit that arrived (%v): %+v, %v", arrives, r, err)
		}
	}
	if n := rows(t, direct); n != 1 {
		t.Errorf("there are %d rows, want that of the commit that arrived", n)
	}
}

func TestTx_ARepeatGetsItsResponseAlthoughItsRollbackIsLost(t *testing.T) {
	direct := newPool(t)
	elsewhere, p := open(t, direct), newProxy(t, direct)
	own(t, direct)
	s := p.open(t, direct)
	c := claimOf("k")
	want, err := elsewhere.RunTx(t.Context(), c, inserts("k"))
	if err != nil {
		t.Fatal(err)
	}
	var lost atomic.Bool
	p.next.Store(&loss{ask: []byte("ROLLBACK\x00"), answer: []byte("ROLLBACK\x00"), meanwhile: func() { lost.Store(true) }})
	c.Owner = owner()
	if r, err := s.RunTx(t.Context(), c, inserts("k")); err != nil || r.Owner != want.Owner || r.State != onlyonce.StateCompleted {
		t.Errorf("the repeat got %+v, %v", r, err)
	}
	if !lost.Load() {
		t.Error("no rollback was lost")
	}
}

// A record without a fingerprint matches every claim, so that only the locks tell what
// the running transaction was asked for.
func TestTx_ADifferentRequestIsRejectedWhileARetryRuns(t *testing.T) {
	pool := newPool(t)
	s, there := open(t, pool), open(t, pool)
	first := claimOf("k")
	first.Fingerprint, first.SkipFingerprint = nil, true
	was := mustClaim(t, s, first)
	if err := s.Settle(t.Context(), holdOf(was), toRetry); err != nil {
		t.Fatal(err)
	}
	retry := func(s *pgxstore.Store, print string, fn func()) onlyonce.Record {
		c := claimOf("k")
		c.Fingerprint, c.RetryFailed = []byte(print), true
		r, err := s.RunTx(t.Context(), c, func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			fn()
			return completed, nil
		})
		if err != nil {
			t.Error(err)
		}
		return r
	}
	retry(s, "a", func() {
		for print, other := range map[string]bool{"a": false, "b": true} {
			r := retry(there, print, func() { t.Error("it ran twice") })
			if rejected := r.Fingerprint != nil && string(r.Fingerprint) != print; rejected != other {
				t.Errorf("%q while %q runs: %+v", print, "a", r)
			}
			if r.State != onlyonce.StateProcessing || r.Attempt != 2 || !r.CreatedAt.Equal(was.CreatedAt) {
				t.Errorf("%q while %q runs: %+v, want a second attempt of %+v", print, "a", r, was)
			}
		}
	})
}

func TestTx_AConflictAfterWhichAnotherAttemptHasCompletedTheCommandIsAReplay(t *testing.T) {
	pool := newPool(t, "default_transaction_isolation=repeatable read")
	s, other := open(t, pool), open(t, pool)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	req := onlyonce.Request{ID: onlyonce.ID{Operation: "pay", Key: "k"}, Fingerprint: []byte("a")}
	runs := 0
	a, err := onlyonce.DoTx(t.Context(), onlyonce.NewTx(s, onlyonce.Config{}), req, func(ctx context.Context, tx pgx.Tx) (int, error) {
		runs++
		if _, err := onlyonce.Do(t.Context(), onlyonce.New(other, onlyonce.Config{}), req, func(context.Context) (int, error) { return 7, nil }); err != nil {
			return 0, err
		}
		if _, err := pool.Exec(t.Context(), "UPDATE counter SET n = n + 1"); err != nil { // the transaction's snapshot is older
			return 0, err
		}
		_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1")
		return 1, err
	})
	if err != nil || a.Value != 7 || !a.Replayed || runs != 1 {
		t.Errorf("the answer is %+v after %d runs, error %v", a, runs, err)
	}
}
