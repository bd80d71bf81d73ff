package onlyonce_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// processors runs a test on one processor and on several.
func processors(t *testing.T, run func(t *testing.T)) {
	for name, n := range map[string]int{"one processor": 1, "several processors": 4} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			run(t)
		})
	}
}

// mostRenewals is more than an attempt may need while none of them comes through.
const mostRenewals = 10

func TestContext_AContextEndsAtItsDeadlineWhateverTheRenewalsDo(t *testing.T) {
	const lease = 24 * time.Second
	for name, renew := range map[string]func(ctx context.Context, do func() error) error{
		"fail at once":            func(context.Context, func() error) error { return errDown },
		"fail after a moment":     func(context.Context, func() error) error { time.Sleep(time.Millisecond); return errDown },
		"take effect and fail":    func(_ context.Context, do func() error) error { return errors.Join(do(), errDown) },
		"hang for good":           func(context.Context, func() error) error { time.Sleep(time.Hour); return errDown },
		"hang until they may not": func(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() },
		"return after the end":    func(_ context.Context, do func() error) error { time.Sleep(lease); return do() },
	} {
		t.Run(name, func(t *testing.T) {
			processors(t, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					var renewals atomic.Int32
					store.set(func() {
						store.renewCtx = func(ctx context.Context, do func() error) error { renewals.Add(1); return renew(ctx, do) }
					})
					g := onlyonce.New(store, onlyonce.Config{Lease: lease})
					a, err := g.Begin(t.Context(), request("k"))
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					ctx, stop := a.Context(t.Context())
					defer stop()
					<-ctx.Done()
					if took := time.Since(began); took != lease*3/4 || context.Cause(ctx) != onlyonce.ErrLost {
						t.Errorf("the context ended after %v with %v, want 18s", took, context.Cause(ctx))
					}
					time.Sleep(2 * time.Hour)
					if n := renewals.Load(); n < 1 || n > mostRenewals {
						t.Errorf("%d renewals", n)
					}
				})
			})
		})
	}
}

func TestContext_ARenewalThatHangsLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 24 * time.Second})
		var renewals atomic.Int32
		store.set(func() {
			store.renewCtx = func(ctx context.Context, do func() error) error {
				if renewals.Add(1)%2 == 1 { // on a connection that is dead
					<-ctx.Done()
					return ctx.Err()
				}
				return do()
			}
		})
		if _, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			for range 100 {
				if time.Sleep(10 * time.Second); ctx.Err() != nil {
					t.Fatalf("the context ended: %v", context.Cause(ctx))
				}
			}
			return 1, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// The clock is the machine's here, so that nothing but the number of renewals
// can be judged: a timer that is never given its turn would make thousands.
func TestContext_OneProcessorIsEnoughToEndManyContextsWhoseRenewalsFail(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	store := newStore()
	var renewals atomic.Int32
	store.set(func() { store.renew = func(func() error) error { renewals.Add(1); return errDown } })
	g := onlyonce.New(store, onlyonce.Config{Lease: 200 * time.Millisecond})
	const attempts = 40
	var all sync.WaitGroup
	for i := range attempts {
		all.Go(func() {
			a, err := g.Begin(context.Background(), request(string(rune('a'+i))))
			if err != nil {
				return // the machine was too busy to begin in time
			}
			ctx, stop := a.Context(context.Background())
			defer stop()
			<-ctx.Done()
			if context.Cause(ctx) != onlyonce.ErrLost {
				t.Errorf("cause %v", context.Cause(ctx))
			}
		})
	}
	all.Wait()
	if n := renewals.Load(); n > attempts*mostRenewals {
		t.Errorf("%d renewals for %d attempts", n, attempts)
	}
}

// halfMinute is a Config whose lease is half a minute.
var halfMinute = onlyonce.Config{Lease: 30 * time.Second}

// twoContexts begins an attempt and makes two contexts of it.
func twoContexts(t *testing.T, g *onlyonce.Guard) (a *onlyonce.Attempt, ctx [2]context.Context, stop [2]context.CancelFunc) {
	t.Helper()
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range ctx {
		ctx[i], stop[i] = a.Context(t.Context())
	}
	return a, ctx, stop
}

func wantCauses(t *testing.T, ctx [2]context.Context, want ...error) {
	t.Helper()
	synctest.Wait()
	for i, ctx := range ctx {
		if got := context.Cause(ctx); got != want[i] {
			t.Errorf("context %d ended with %v, want %v", i+1, got, want[i])
		}
	}
}

func TestContext_EveryContextOfAnAttemptEndsWhenItsLeaseIsLost(t *testing.T) {
	for name, fault := range map[string]func(func() error) error{
		"another took over":  func(func() error) error { return onlyonce.ErrLost },
		"the store is away ": down,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				store.set(func() { store.renew = fault })
				a, ctx, stop := twoContexts(t, onlyonce.New(store, halfMinute))
				defer stop[1]()
				defer stop[0]()
				time.Sleep(time.Minute)
				wantCauses(t, ctx, onlyonce.ErrLost, onlyonce.ErrLost)
				late, stopLate := a.Context(t.Context())
				defer stopLate()
				if context.Cause(late) != onlyonce.ErrLost {
					t.Errorf("a context that was made afterwards: %v", context.Cause(late))
				}
			})
		})
	}
}

func TestContext_StoppingOneContextDoesNotEndTheRenewalsThatAnotherNeeds(t *testing.T) {
	for first := range 2 {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			var renewals atomic.Int32
			store.set(func() { store.renew = func(do func() error) error { renewals.Add(1); return do() } })
			_, ctx, stop := twoContexts(t, onlyonce.New(store, halfMinute))
			want := []error{nil, nil}
			want[first] = context.Canceled
			stop[first]()
			time.Sleep(time.Hour)
			wantCauses(t, ctx, want...)
			if left := lookup(t, store, request("k")).LeaseLeft; left <= 0 {
				t.Errorf("the lease has %v left", left)
			}
			stop[1-first]()
			wantCauses(t, ctx, context.Canceled, context.Canceled)
			n := renewals.Load()
			time.Sleep(time.Hour)
			if renewals.Load() != n {
				t.Error("renewed without a context")
			}
		})
	}
}

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

func TestContext_AClaimThatReturnedTooLateRunsNothingAndIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.set(func() {
			store.claim = func(do func() error) error { err := do(); time.Sleep(25 * time.Second); return err }
		})
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		if !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		synctest.Wait()
		if _, err := store.Lookup(t.Context(), request("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("lookup: %v", err)
		}
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

func TestContext_WhatIsAskedForOnlyAfterTheEndIsTheSameAsBefore(t *testing.T) {
	type key struct{}
	for name, asked := range map[string]func(context.Context){
		"never asked for":    func(context.Context) {},
		"asked for its end":  func(ctx context.Context) { ctx.Done() },
		"asked for a value":  func(ctx context.Context) { ctx.Value(key{}) },
		"asked for an error": func(ctx context.Context) { _ = ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
				cancel(errors.New("the caller has gone"))
				store := newStore()
				a, ctx, stop := twoContexts(t, onlyonce.New(store, halfMinute))
				alone, stopAlone := a.Context(outer)
				defer stopAlone()
				asked(alone)
				if alone.Err() != nil || context.Cause(alone) != nil || alone.Value(key{}) != "value" || onlyonce.Current(alone) != a {
					t.Fatalf("error %v, cause %v, value %v", alone.Err(), context.Cause(alone), alone.Value(key{}))
				}
				stop[0]()
				store.set(func() { store.renew = func(func() error) error { return onlyonce.ErrLost } })
				time.Sleep(time.Minute)
				wantCauses(t, ctx, context.Canceled, onlyonce.ErrLost)
				for i, ended := range []context.Context{ctx[0], ctx[1], alone} {
					select {
					case <-ended.Done():
					default:
						t.Errorf("context %d has an error, and is not done", i+1)
					}
					if ended.Err() != context.Canceled {
						t.Errorf("context %d: error %v", i+1, ended.Err())
					}
				}
				derived, stopDerived := context.WithCancel(alone)
				defer stopDerived()
				if context.Cause(derived) != onlyonce.ErrLost || derived.Value(key{}) != "value" {
					t.Errorf("a context derived after the end: cause %v, value %v", context.Cause(derived), derived.Value(key{}))
				}
			})
		})
	}
}

// A context that package context does not recognize costs a goroutine for each one that is
// derived from it.
func TestContext_DerivedContextsNeedNoGoroutineAndEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, ctx, stop := twoContexts(t, onlyonce.New(newStore(), halfMinute))
		defer stop[1]()
		before := runtime.NumGoroutine()
		derived := make([]context.Context, 1000)
		for i := range derived {
			var cancel context.CancelFunc
			derived[i], cancel = context.WithTimeout(ctx[i%2], time.Hour)
			defer cancel()
		}
		if n := runtime.NumGoroutine(); n > before+len(derived)/2 { // the runtime counts some that have ended
			t.Errorf("%d goroutines, %d before", n, before)
		}
		stop[0]()
		if derived[0].Err() != context.Canceled || derived[1].Err() != nil {
			t.Errorf("errors %v and %v", derived[0].Err(), derived[1].Err())
		}
		if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
			t.Fatal(err)
		}
		for i, ctx := range derived {
			if ctx.Err() != context.Canceled {
				t.Errorf("context %d: error %v", i, ctx.Err())
			}
		}
	})
}
