package onlyonce_test

import (
	"context"
	"errors"
	"runtime"
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
