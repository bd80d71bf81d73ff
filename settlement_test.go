package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// impossible are states in which no attempt can end.
var impossible = []onlyonce.State{onlyonce.StateProcessing, "released", "Completed", "completed "}

func wantImpossible(t *testing.T, state onlyonce.State, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), `can't end in the state "`+string(state)+`"`) {
		t.Errorf("state %q: error %v", state, err)
	}
}

func TestSettlement_AnImpossibleStatusIsRejectedAndTheAttemptGoesOn(t *testing.T) {
	for _, status := range []int{math.MinInt32 - 1, math.MaxInt32 + 1, 1 << 40} {
		store := newStore()
		a, err := onlyonce.New(store, onlyonce.Config{}).Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		err = a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: status}})
		if rec := lookup(t, store, request("k")); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || rec.State != onlyonce.StateProcessing {
			t.Errorf("status %d: record %+v, error %v", status, rec, err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("SetStatus(%d) did not panic", status)
				}
			}()
			a.SetStatus(status)
		}()
		if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 999}}); err != nil {
			t.Error(err)
		}
	}
}

func TestSettlement_ASettlementInAnImpossibleStateIsRejectedAndTheAttemptGoesOn(t *testing.T) {
	for _, state := range impossible {
		synctest.Test(t, func(t *testing.T) {
			var log eventLog
			store := newStore()
			g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second, Observer: log.observe})
			a, err := g.Begin(t.Context(), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := a.Context(t.Context())
			defer stop()
			wantImpossible(t, state, a.Settle(ctx, onlyonce.Settlement{State: state}))
			time.Sleep(time.Minute)
			if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateProcessing || rec.LeaseLeft <= 0 || ctx.Err() != nil {
				t.Errorf("record %+v, context %v", rec, ctx.Err())
			}
			if err := a.Settle(ctx, onlyonce.Settlement{State: onlyonce.StateCompleted}); err != nil {
				t.Error(err)
			}
			log.expect(t, "executed")
		})
	}
}

func TestSettlement_AReconcileThatReturnsAnImpossibleStateLeavesTheOutcomeUnknown(t *testing.T) {
	for _, state := range impossible {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			crash(t, store, request("k"), time.Second)
			time.Sleep(2 * time.Second)
			asked := 0
			g := onlyonce.New(store, onlyonce.Config{Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
				if asked++; asked > 3 {
					t.Error("asked again and again")
					return onlyonce.Settlement{State: onlyonce.StateUnknown}, nil
				}
				return onlyonce.Settlement{State: state}, nil
			}})
			_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, errors.New("ran") })
			wantImpossible(t, state, err)
			if rec := lookup(t, store, request("k")); !errors.Is(err, onlyonce.ErrUnknown) || rec.State != onlyonce.StateUnknown || asked != 1 {
				t.Errorf("error %v, record %+v, asked %d times", err, rec, asked)
			}
		})
	}
}

func TestSettlement_ATransactionThatEndsInAnImpossibleStateIsRolledBack(t *testing.T) {
	own := errors.New("the function's own")
	for _, state := range impossible {
		for _, failed := range []error{nil, own} {
			var log eventLog
			l := newLedger()
			g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
			_, err := g.BeginTx(t.Context(), request("k"), func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
				tx["x"] = 1
				return onlyonce.Settlement{State: state}, failed
			})
			wantImpossible(t, state, err)
			if _, found := l.Lookup(t.Context(), request("k").ID); !errors.Is(found, onlyonce.ErrNotFound) || l.row("x") != 0 || failed != nil && !errors.Is(err, failed) {
				t.Errorf("lookup %v, row %d, error %v", found, l.row("x"), err)
			}
			log.expect(t, "failed")
		}
	}
}

func TestSettlement_ASettlementInATransactionInAnImpossibleStateLeavesTheAttemptGoingOn(t *testing.T) {
	for _, state := range impossible {
		var log eventLog
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		settle := func(state onlyonce.State) error {
			return g.SettleTx(t.Context(), a, func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
				tx["x"]++
				return onlyonce.Settlement{State: state}, nil
			})
		}
		wantImpossible(t, state, settle(state))
		if rec := lookup(t, l, request("k")); rec.State != onlyonce.StateProcessing || l.row("x") != 0 {
			t.Errorf("record %+v, row %d", rec, l.row("x"))
		}
		if err := settle(onlyonce.StateCompleted); err != nil || l.row("x") != 1 {
			t.Errorf("error %v, row %d", err, l.row("x"))
		}
		log.expect(t, "executed")
	}
}

func TestSettlement_ARecordInAnUnsupportedStateIsNotReplayed(t *testing.T) {
	for _, state := range []onlyonce.State{"parked", ""} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			crash(t, store, request("k"), time.Second)
			store.alter = func(r *onlyonce.Record) { r.State = state }
			g := onlyonce.New(store, onlyonce.Config{Wait: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := onlyonce.Do(ctx, g, request("k"), func(context.Context) (int, error) { return 0, errors.New("ran") })
			if !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), `in the state "`+string(state)+`"`) {
				t.Errorf("state %q: error %v", state, err)
			}
		})
	}
}

func TestSettlement_AnAttemptWhoseResultIsTooLargeGoesOnUntilItIsSettledWithLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.set(func() { store.settle = func(func() error) error { return onlyonce.ErrTooLarge } })
		g := onlyonce.New(store, onlyonce.Config{Lease: time.Second})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := a.Context(t.Context())
		defer stop()
		began := time.Now()
		if err := a.Settle(ctx, onlyonce.Settlement{State: onlyonce.StateCompleted}); !errors.Is(err, onlyonce.ErrTooLarge) || time.Since(began) > 0 {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
		if rec := a.Record(); rec.State != onlyonce.StateProcessing {
			t.Errorf("the attempt's record is %q", rec.State)
		}
		time.Sleep(10 * time.Second) // ten leases
		if rec := lookup(t, store, request("k")); ctx.Err() != nil || rec.LeaseLeft <= 0 {
			t.Errorf("the context's cause is %v, and %v of the lease are left", context.Cause(ctx), rec.LeaseLeft)
		}
		store.set(func() { store.settle = nil })
		if err := a.Settle(ctx, onlyonce.Settlement{State: onlyonce.StateCompleted}); err != nil || ctx.Err() == nil {
			t.Errorf("settled with less: %v, and the context's error is %v", err, ctx.Err())
		}
		if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateCompleted || rec.Attempt != 1 {
			t.Errorf("record %+v", rec)
		}
	})
}

func TestSettlement_AContextThatWasStoppedWhileAResultWasTooLargeEnds(t *testing.T) {
	store := newStore()
	g := onlyonce.New(store, onlyonce.Config{})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := a.Context(t.Context())
	other, stopOther := a.Context(t.Context())
	defer stopOther()
	store.set(func() { store.settle = func(func() error) error { stop(); return onlyonce.ErrTooLarge } })
	if err := a.Settle(ctx, onlyonce.Settlement{State: onlyonce.StateCompleted}); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Fatal(err)
	}
	if ctx.Err() == nil || other.Err() != nil {
		t.Errorf("the stopped context's error is %v, the other's %v", ctx.Err(), other.Err())
	}
}
