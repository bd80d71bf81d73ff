package onlyonce_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

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
