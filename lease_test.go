package onlyonce_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestLease_ALeaseIsRenewedAsLongAsTheAttemptRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			for range 100 {
				time.Sleep(10 * time.Second)
				if left := lookup(t, store, request("k")).LeaseLeft; left < 19*time.Second {
					t.Fatalf("the lease has %v left", left)
				}
			}
			return 1, ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestLease_TheContextEndsWithErrLostWhenAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second, Observer: log.observe})
		store.set(func() { store.renew = down })
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			time.Sleep(31 * time.Second)
			a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 2, nil })
			if err != nil || a.Value != 2 || a.Attempt != 2 {
				t.Errorf("the attempt that took over got %+v, %v", a, err)
			}
			if context.Cause(ctx) != onlyonce.ErrLost {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return 1, nil
		})
		if !errors.Is(err, onlyonce.ErrLost) {
			t.Fatalf("error %v", err)
		}
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 3, nil })
		if err != nil || a.Value != 2 {
			t.Fatalf("response %+v, error %v", a, err)
		}
		log.expect(t, "taken_over", "executed", "lost", "replayed")
	})
}

func TestLease_ALostRenewalCancelsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second})
		store.set(func() { store.renew = func(func() error) error { return onlyonce.ErrLost } })
		began := time.Now()
		_, _ = onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		if took := time.Since(began); took != 10*time.Second {
			t.Fatalf("the context ended after %v, want at the first renewal", took)
		}
	})
}

func TestLease_WithoutRenewalsTheContextEndsBeforeTheLeaseDoes(t *testing.T) {
	for name, renew := range map[string]func(func() error) error{
		"rejected": down,
		"hanging":  func(func() error) error { time.Sleep(time.Hour); return errDown },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				g := onlyonce.New(store, onlyonce.Config{Lease: 40 * time.Second})
				store.set(func() { store.renew = renew })
				began := time.Now()
				_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, context.Cause(ctx)
				})
				if took := time.Since(began); took < 29*time.Second || took > 31*time.Second {
					t.Errorf("the context ended after %v, want 30s: the lease less a quarter", took)
				}
				if !errors.Is(err, onlyonce.ErrLost) {
					t.Errorf("error %v", err)
				}
				if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown {
					t.Errorf("record %+v", rec)
				}
				time.Sleep(time.Hour) // until the call that hung is over
			})
		})
	}
}

func TestLease_ALateResultCountsIfNobodyTookOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second})
		store.set(func() { store.renew = down })
		if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
			time.Sleep(time.Hour)
			return 1, nil
		}); err != nil {
			t.Fatal(err)
		}
		if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateCompleted {
			t.Fatalf("record %+v", rec)
		}
	})
}

func TestLease_SettlingIsTriedAgainUntilTheStoreIsBack(t *testing.T) {
	for name, fault := range map[string]func(func() error) error{"down": down, "answers lost": lossy} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log eventLog
				store := newStore()
				g := onlyonce.New(store, onlyonce.Config{Observer: log.observe})
				store.set(func() { store.settle = times(5, fault) })
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := onlyonce.Do(ctx, g, request("k"), func(context.Context) (int, error) { cancel(); return 1, nil }); err != nil {
					t.Fatal(err)
				}
				if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateCompleted {
					t.Fatalf("record %+v", rec)
				}
				log.expect(t, "executed")
			})
		})
	}
}

func TestLease_AResultThatCannotBeStoredIsReturnedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second, Observer: log.observe})
		store.set(func() { store.settle = down })
		began := time.Now()
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 1, nil })
		if err != nil || a.Value != 1 {
			t.Fatalf("response %+v, error %v", a, err)
		}
		if took := time.Since(began); took < 29*time.Second || took > 32*time.Second {
			t.Fatalf("gave up after %v, want when the lease ends", took)
		}
		log.expect(t, "unrecorded")
	})
}

// A hanging store responds neither to a settlement nor, if it is told so, to a renewal.
type hanging struct {
	onlyonce.Store
	renewals bool
}

func (s hanging) Settle(ctx context.Context, _ onlyonce.Hold, _ onlyonce.Settlement) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s hanging) Renew(ctx context.Context, h onlyonce.Hold, d time.Duration, steps map[string][]byte) error {
	if s.renewals {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.Store.Renew(ctx, h, d, steps)
}

func TestLease_ASettlementThatHangsEndsWithTheLease(t *testing.T) {
	const lease = 30 * time.Second
	for _, c := range []struct {
		after, within time.Duration
		renewals      bool
	}{
		{after: 0, within: lease},
		{after: lease/3 - 1, within: lease},
		{after: lease / 3, within: lease},
		{after: lease/3 + 1, within: lease},
		{after: 5 * lease, within: lease},
		{after: lease / 2, within: lease / 2, renewals: true},
		{after: 2 * lease, within: lease / 4, renewals: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := onlyonce.New(hanging{newStore(), c.renewals}, onlyonce.Config{Lease: lease})
			var settling time.Time
			if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
				time.Sleep(c.after)
				settling = time.Now()
				return 1, nil
			}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(settling); took > c.within || took < lease/4 {
				t.Errorf("settling after %v took %v, want at most %v", c.after, took, c.within)
			}
		})
	}
}

func TestLease_AClaimWhoseResponseWasLostIsRecognized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{})
		store.set(func() { store.claim = times(1, lossy) })
		a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 1, nil })
		if err != nil || a.Attempt != 1 {
			t.Fatalf("response %+v, error %v", a, err)
		}
	})
}

func TestLease_AClaimThatStaysInDoubtIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{})
		store.set(func() { store.claim = times(2, lossy) })
		if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) || !errors.Is(err, errDown) {
			t.Fatalf("error %v", err)
		}
		synctest.Wait()
		if _, err := store.Lookup(t.Context(), request("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Fatalf("lookup: %v", err)
		}
	})
}

func TestLease_AClaimWhoseRepeatIsRejectedIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
		n := 0
		store.set(func() {
			store.claim = func(do func() error) error {
				if n++; n == 2 {
					return onlyonce.ErrUnavailable // of this call: the first one took effect
				}
				return errors.Join(errDown, do())
			}
		})
		if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) || n != 2 {
			t.Fatalf("%d claims, error %v", n, err)
		}
		synctest.Wait()
		if r, err := store.Lookup(t.Context(), request("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Fatalf("lookup got %+v, error %v", r, err)
		}
	})
}

func TestLease_AClaimThatReachesTheStoreAfterItsCallWasLostIsReleased(t *testing.T) {
	for _, before := range []onlyonce.State{"", onlyonce.StateFailed} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			g := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
			if before == onlyonce.StateFailed {
				_, _ = onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, errors.New("declined") })
			}
			arrived := make(chan error, 2)
			store.set(func() {
				store.claim = func(do func() error) error {
					time.AfterFunc(200*time.Millisecond, func() { arrived <- do() })
					return errDown
				}
			})
			if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Fatalf("error %v", err)
			}
			if err := <-arrived; err != nil {
				t.Fatal(err)
			}
			if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateProcessing {
				t.Fatalf("the claim came through, and the record is %+v", rec)
			}
			time.Sleep(2 * time.Second)
			rec, err := store.Lookup(t.Context(), request("k").ID)
			if before == "" && !errors.Is(err, onlyonce.ErrNotFound) || before != "" && rec.State != before {
				t.Errorf("the claim was not given back: %+v, %v", rec, err)
			}
		})
	}
}

func TestLease_AClaimInDoubtIsReleasedOnceTheStoreRespondsAgain(t *testing.T) {
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fails := func(context.Context) error { return errDown }
	for _, away := range []func(context.Context) error{hangs, fails} {
		synctest.Test(t, func(t *testing.T) {
			store := &awayStore{faultyStore: newStore(), away: away}
			g := onlyonce.New(store, onlyonce.Config{Lease: time.Minute, HoldUnknown: true})
			const crowd = 100
			for i := range crowd {
				store.set(func() { store.claim = times(2, lossy) })
				if _, err := g.Begin(t.Context(), request(strconv.Itoa(i))); !errors.Is(err, onlyonce.ErrUnavailable) {
					t.Fatalf("error %v", err)
				}
			}
			time.Sleep(5 * time.Second)
			store.back.Store(true)
			time.Sleep(55 * time.Second)
			for i := range crowd {
				if _, err := store.Store.Lookup(t.Context(), request(strconv.Itoa(i)).ID); !errors.Is(err, onlyonce.ErrNotFound) {
					t.Fatalf("claim %d was not given back: %v", i, err)
				}
			}
			if n := store.most.Load(); n > 16 {
				t.Errorf("%d lookups at the same time", n)
			}
		})
	}
}

func TestLease_AClaimInDoubtIsReleasedAfterItsLeaseIfAPersonWouldHaveToDecide(t *testing.T) {
	for name, cfg := range map[string]onlyonce.Config{
		"held": {HoldUnknown: true},
		"looked at": {Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{}, errDown
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &awayStore{faultyStore: newStore(), away: func(context.Context) error { return errDown }}
				g := onlyonce.New(store, cfg)
				store.set(func() { store.claim = times(2, lossy) })
				if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) {
					t.Fatalf("error %v", err)
				}
				time.Sleep(30 * time.Minute)
				store.back.Store(true)
				time.Sleep(time.Minute)
				if r, err := store.Store.Lookup(t.Context(), request("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
					t.Errorf("nothing ran, and the record is %+v, error %v", r, err)
				}
			})
		})
	}
}

// An awayStore does not respond to lookups until it is back.
type awayStore struct {
	*faultyStore
	away      func(context.Context) error
	back      atomic.Bool
	now, most atomic.Int64
}

func (s *awayStore) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	if !s.back.Load() {
		return onlyonce.Record{}, s.away(ctx)
	}
	return s.faultyStore.Lookup(ctx, id)
}

func TestLease_AClaimInDoubtLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails when a goroutine is left
		store := newStore()
		store.set(func() { store.claim = down })
		if _, err := onlyonce.New(store, onlyonce.Config{}).Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
	})
}

// takeOverInDoubt begins a command that an earlier attempt has left. All responses to claims
// after the first, which finds the record, are lost.
func takeOverInDoubt(t *testing.T, store *faultyStore, g *onlyonce.Guard) {
	t.Helper()
	calls := 0
	store.set(func() {
		store.claim = func(do func() error) error {
			if calls++; calls == 1 {
				return do()
			}
			return lossy(do)
		}
	})
	if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	synctest.Wait()
}

func TestLease_ATakeOverOfAnUnknownOutcomeThatStaysInDoubtIsReleasedAsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{})
		if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
			return 0, onlyonce.Unknown(errors.New("no response"))
		}); err == nil {
			t.Fatal("no error")
		}
		takeOverInDoubt(t, store, g)
		if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown || rec.Attempt != 2 || rec.Error != "no response" {
			t.Fatalf("record %+v", rec)
		}
	})
}

func TestLease_ATakeOverThatStaysInDoubtIsReleasedAsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{})
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		takeOverInDoubt(t, store, g)
		if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown || rec.Attempt != 2 {
			t.Fatalf("record %+v", rec)
		}
	})
}

func TestLease_ARetryThatStaysInDoubtIsReleasedAsTheFailureThatItFound(t *testing.T) {
	for _, cfg := range []onlyonce.Config{{}, {HoldUnknown: true}} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			g := onlyonce.New(store, cfg)
			fail := func(context.Context) (int, error) { return 0, errors.New("card declined") }
			if _, err := onlyonce.Do(t.Context(), g, request("k"), fail); err == nil {
				t.Fatal("no error")
			}
			store.set(func() { store.claim = times(2, lossy) })
			if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Fatalf("error %v", err)
			}
			synctest.Wait()
			rec := lookup(t, store, request("k"))
			if rec.State != onlyonce.StateFailed || rec.Final || rec.Error != "card declined" || rec.Attempt != 2 || rec.KeepLeft != 24*time.Hour {
				t.Errorf("record %+v", rec)
			}
			a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 1, nil })
			if err != nil || a.Value != 1 || a.Attempt != 3 {
				t.Errorf("response %+v, error %v", a, err)
			}
		})
	}
}

func TestLease_TheFenceGrowsAndAnAttemptIsSettledOnce(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	var last int64
	for range 3 {
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		if a.Fence() <= last {
			t.Fatalf("fence %d after %d", a.Fence(), last)
		}
		last = a.Fence()
		if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
			t.Fatal(err)
		}
		if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted}); err == nil {
			t.Fatal("settled twice")
		}
	}
}

func TestLease_AClaimThatArrivesWhileItsCallerWaitsIsNotTakenForALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		holder, err := onlyonce.New(store.Store, onlyonce.Config{}).Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		store.claim = times(1, func(do func() error) error {
			time.AfterFunc(10*time.Second+time.Millisecond, func() { // no waiter polls then: see pollStep
				if err := errors.Join(holder.Settle(t.Context(), onlyonce.Settlement{}), do()); err != nil {
					t.Error(err)
				}
			})
			return errDown // and the repeated claim finds that the command is running
		})
		var running, most atomic.Int32
		call := func(s onlyonce.Store) {
			g := onlyonce.New(s, onlyonce.Config{Wait: time.Hour})
			_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(5 * time.Second)
				return 1, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		var callers sync.WaitGroup
		callers.Go(func() { call(store) })
		time.Sleep(41 * time.Second) // the lease of the claim that arrived late has lapsed
		if running.Load() != 1 {
			t.Fatalf("%d attempts are running, want that of the caller that waits", running.Load())
		}
		call(store.Store)
		callers.Wait()
		if most.Load() != 1 {
			t.Errorf("%d attempts ran at the same time", most.Load())
		}
	})
}

func TestLease_AClaimThatArrivesLateIsNotTakenForThatOfReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		dead, err := onlyonce.New(store.Store, onlyonce.Config{}).Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // its lease has lapsed
		var late func() error
		store.claim = times(2, func(do func() error) error {
			if late == nil {
				late = do
				return errDown
			}
			// The repeated claim finds that the outcome is unknown, but its response takes long.
			err := errors.Join(do(), dead.Settle(t.Context(), onlyonce.Settlement{}), late())
			time.Sleep(25 * time.Second) // the lease of the claim that arrived late still lasts 5 seconds
			return err
		})
		var running, most atomic.Int32
		call := func(s onlyonce.Store) {
			g := onlyonce.New(s, onlyonce.Config{Wait: time.Hour, Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, nil
			}})
			_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(8 * time.Second)
				return 1, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		var callers sync.WaitGroup
		callers.Go(func() { call(store) })
		time.Sleep(26 * time.Second)
		call(store.Store)
		callers.Wait()
		if most.Load() != 1 {
			t.Errorf("%d attempts ran at the same time", most.Load())
		}
	})
}
