package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestContext_SettlingEndsEveryContext(t *testing.T) {
	for name, settle := range map[string]func(func() error) error{"": nil, " also if the store is away": down} {
		t.Run("Settle"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				store.set(func() { store.settle = settle })
				a, ctx, stop := twoContexts(t, onlyonce.New(store, halfMinute))
				_ = a.Settle(ctx[0], onlyonce.Settlement{State: onlyonce.StateCompleted})
				for i := range ctx {
					if ctx[i].Err() == nil {
						t.Errorf("context %d lives", i+1)
					}
				}
				late, stopLate := a.Context(t.Context())
				if late.Err() == nil {
					t.Error("a context that was made afterwards lives")
				}
				stopLate()
				stop[0]()
				stop[1]()
			})
		})
	}
}

func TestContext_SettlingInATransactionEndsTheRenewalsAndNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		var renewals atomic.Int32
		l.set(func() { l.renew = func(do func() error) error { renewals.Add(1); return do() } })
		g := onlyonce.NewTx(l, halfMinute)
		a, ctx, stop := twoContexts(t, g.Guard)
		if err := g.SettleTx(ctx[0], a, func(context.Context, entry) (onlyonce.Settlement, error) {
			time.Sleep(65 * time.Second) // no renewal is due at the end
			return onlyonce.Settlement{State: onlyonce.StateCompleted}, nil
		}); err != nil {
			t.Fatal(err)
		}
		n := renewals.Load()
		if n < 5 {
			t.Errorf("%d renewals during a transaction of more than two leases", n)
		}
		time.Sleep(time.Hour)
		wantCauses(t, ctx, nil, nil)
		if renewals.Load() != n {
			t.Error("renewed what is settled")
		}
		stop[0]()
		stop[1]()
		wantCauses(t, ctx, context.Canceled, context.Canceled)
	})
}

// A renewal finds the record settled by the transaction whose commit has not returned yet.
func TestContext_ARenewalDuringTheCommitEndsNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.set(func() {
			l.settle = func(do func() error) error {
				err := do()
				time.Sleep(15 * time.Second) // a renewal is due after each third of half a minute
				return err
			}
		})
		g := onlyonce.NewTx(l, halfMinute)
		a, ctx, stop := twoContexts(t, g.Guard)
		if err := g.SettleTx(ctx[0], a, func(context.Context, entry) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{State: onlyonce.StateCompleted}, nil
		}); err != nil {
			t.Error(err)
		}
		wantCauses(t, ctx, nil, nil)
		stop[0]()
		stop[1]()
	})
}

func TestContext_AContextOfACommandInATransactionEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{Lease: 30 * time.Second})
		var kept context.Context
		if _, err := onlyonce.DoTx(t.Context(), g, request("k"), func(ctx context.Context, _ entry) (int, error) {
			kept, _ = onlyonce.Current(ctx).Context(t.Context())
			slow, stop := onlyonce.Current(ctx).Context(t.Context())
			defer stop()
			began := time.Now()
			<-slow.Done()
			if took := time.Since(began); took != 30*time.Second {
				t.Errorf("the context ended after %v, want when the transaction's time is over", took)
			}
			return 1, nil
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if kept.Err() == nil {
			t.Error("the context outlives the transaction")
		}
	})
}

func TestContext_StoppingAContextDoesNotEndTheSettlementThatUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		asked := make(chan struct{}, 1)
		store.set(func() {
			store.settle = times(1, func(func() error) error { asked <- struct{}{}; return errDown })
		})
		a, ctx, stop := twoContexts(t, onlyonce.New(store, halfMinute))
		done := make(chan error)
		go func() { done <- a.Settle(ctx[0], onlyonce.Settlement{State: onlyonce.StateCompleted}) }()
		<-asked
		stop[0]()
		stop[1]()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateCompleted {
			t.Errorf("record %+v", rec)
		}
		wantCauses(t, ctx, context.Canceled, context.Canceled)
	})
}

func TestContext_AnAttemptIsSettledByOneCall(t *testing.T) {
	completed := onlyonce.Settlement{State: onlyonce.StateCompleted}
	settleTx := func(t *testing.T, g *onlyonce.TxGuard[entry], a *onlyonce.Attempt, fn func()) error {
		return g.SettleTx(t.Context(), a, func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
			tx["x"]++
			fn()
			return completed, nil
		})
	}
	begin := func(t *testing.T, l *ledger, log *eventLog) (*onlyonce.TxGuard[entry], *onlyonce.Attempt) {
		g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		return g, a
	}
	t.Run("Settle, then both", func(t *testing.T) {
		var log eventLog
		l := newLedger()
		g, a := begin(t, l, &log)
		failed := onlyonce.Settlement{State: onlyonce.StateFailed, Error: "declined"}
		if err := a.Settle(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
		if err := settleTx(t, g, a, func() { t.Error("ran") }); err == nil || !strings.Contains(err.Error(), "settled before") {
			t.Errorf("error %v", err)
		}
		if err := a.Settle(t.Context(), completed); err == nil || a.Record().State != onlyonce.StateFailed {
			t.Errorf("error %v, record %+v", err, a.Record())
		}
		log.expect(t, "failed")
	})
	t.Run("Settle inside the function of SettleTx", func(t *testing.T) {
		var log eventLog
		l := newLedger()
		g, a := begin(t, l, &log)
		err := settleTx(t, g, a, func() {
			if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateFailed, Error: "by Settle"}); err != nil {
				t.Error(err)
			}
		})
		if err == nil || l.row("x") != 0 || lookup(t, l, request("k")).Error != "by Settle" {
			t.Errorf("error %v, row %d, record %+v", err, l.row("x"), lookup(t, l, request("k")))
		}
		log.expect(t, "failed")
	})
	t.Run("Settle inside the function of SettleTx, whose connection then breaks", func(t *testing.T) {
		var log eventLog
		l := newLedger()
		g := onlyonce.NewTx(conflict{l, func() error { return errDown }}, onlyonce.Config{Observer: log.observe})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		err = settleTx(t, g, a, func() {
			if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateFailed, Error: "by Settle"}); err != nil {
				t.Error(err)
			}
		})
		if err == nil || !strings.Contains(err.Error(), "settled before") || a.Record().Error != "by Settle" || g.InFlight() != 0 {
			t.Errorf("error %v, record %+v, %d in flight", err, a.Record(), g.InFlight())
		}
		log.expect(t, "failed")
	})
	t.Run("Settle while SettleTx commits", func(t *testing.T) {
		var log eventLog
		l := newLedger()
		g, a := begin(t, l, &log)
		l.settle = func(do func() error) error {
			if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateFailed}); !errors.Is(err, onlyonce.ErrInFlight) {
				t.Errorf("error %v", err)
			}
			return do()
		}
		if err := settleTx(t, g, a, func() {}); err != nil || l.row("x") != 1 {
			t.Errorf("error %v, row %d", err, l.row("x"))
		}
		log.expect(t, "executed")
	})
	t.Run("SettleTx inside SettleTx", func(t *testing.T) {
		var log eventLog
		l := newLedger()
		g, a := begin(t, l, &log)
		if err := settleTx(t, g, a, func() {
			if err := settleTx(t, g, a, func() { t.Error("ran") }); !errors.Is(err, onlyonce.ErrInFlight) {
				t.Errorf("error %v", err)
			}
		}); err != nil {
			t.Error(err)
		}
		log.expect(t, "executed")
	})
	t.Run("a replayed attempt", func(t *testing.T) {
		var log eventLog
		l := newLedger()
		_, first := begin(t, l, &log)
		if err := first.Settle(t.Context(), completed); err != nil {
			t.Fatal(err)
		}
		g, a := begin(t, l, &log)
		was := a.Record()
		if err := a.Settle(t.Context(), onlyonce.Settlement{}); err == nil {
			t.Error("settled what is replayed")
		}
		if err := settleTx(t, g, a, func() { t.Error("ran") }); err == nil {
			t.Error("settled what is replayed in a transaction")
		}
		if now := a.Record(); !a.Replayed() || now.State != was.State || now.Owner != was.Owner {
			t.Errorf("the attempt's record was %+v and is %+v", was, now)
		}
		log.expect(t, "executed", "replayed")
	})
}
