package onlyonce_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestWait_ADuplicateOfARunningCommandIsRejectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		g := onlyonce.New(newStore(), onlyonce.Config{Lease: 30 * time.Second, Observer: log.observe})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
			time.Sleep(5 * time.Second)
			_, err := g.Begin(t.Context(), request("k"))
			var inFlight *onlyonce.InFlightError
			if !errors.As(err, &inFlight) || !errors.Is(err, onlyonce.ErrInFlight) || inFlight.RetryAfter != 25*time.Second {
				t.Errorf("error %v", err)
			}
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		log.expect(t, "in_flight", "executed")
	})
}

func TestWait_WaitersGetTheResponseAsSoonAsItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		g := onlyonce.New(newStore(), onlyonce.Config{Wait: time.Minute, Observer: log.observe})
		began := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) {
					time.Sleep(1234567 * time.Microsecond)
					return 42, nil
				})
				if err != nil || a.Value != 42 {
					t.Errorf("response %+v, error %v", a, err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 1234567*time.Microsecond {
			t.Errorf("took %v: the waiters were not woken by the attempt", took)
		}
		if log.count("executed") != 1 || log.count("replayed") != 99 || log.count("waited") != 99 {
			t.Errorf("executed %d, replayed %d, waited %d", log.count("executed"), log.count("replayed"), log.count("waited"))
		}
	})
}

func TestWait_WaitersOfAnotherProcessPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		here := onlyonce.New(store, onlyonce.Config{Wait: time.Minute})
		there := onlyonce.New(store, onlyonce.Config{})
		a, err := there.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := onlyonce.Do(t.Context(), here, request("k"), func(context.Context) (int, error) { return 0, errors.New("ran") })
			done <- err
		}()
		time.Sleep(10 * time.Second)
		settled := time.Now()
		if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(settled); took > 500*time.Millisecond {
			t.Errorf("noticed after %v", took)
		}
	})
}

func TestWait_WaitingEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onlyonce.New(newStore(), onlyonce.Config{Wait: 2 * time.Second})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("gone"))
		defer cancel()
		check := func(ctx context.Context, wait, want time.Duration) error {
			t.Helper()
			req := request("k")
			req.Wait = wait
			began := time.Now()
			_, err := g.Begin(ctx, req)
			if took := time.Since(began); took != want {
				t.Errorf("waited %v, want %v", took, want)
			}
			return err
		}
		if err := check(ctx, 0, time.Second); err == nil || errors.Is(err, onlyonce.ErrInFlight) || context.Cause(ctx).Error() != "gone" {
			t.Errorf("error %v", err)
		}
		for wait, want := range map[time.Duration]time.Duration{0: 2 * time.Second, 3 * time.Second: 3 * time.Second, -1: 0} {
			if err := check(t.Context(), wait, want); !errors.Is(err, onlyonce.ErrInFlight) {
				t.Errorf("error %v", err)
			}
		}
		if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWait_WaitersAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		g := onlyonce.New(newStore(), onlyonce.Config{Wait: time.Second, MaxWaiters: 5, MaxWaitersPerID: 3, Observer: log.observe})
		for _, key := range []string{"a", "b"} {
			if _, err := g.Begin(t.Context(), request(key)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		atOnce := 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			for range 10 {
				all.Go(func() {
					if _, err := g.Begin(t.Context(), request(key)); !errors.Is(err, onlyonce.ErrInFlight) {
						t.Errorf("error %v", err)
					}
					mu.Lock()
					defer mu.Unlock()
					if time.Since(began) == 0 {
						atOnce++
					}
				})
			}
		}
		all.Wait()
		if atOnce != 16 || log.count("waited") != 4 || log.count("in_flight") != 20 {
			t.Errorf("%d rejected at once, %d waited, %d in flight", atOnce, log.count("waited"), log.count("in_flight"))
		}
	})
}

func TestWait_ATenantLeavesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onlyonce.New(newStore(), onlyonce.Config{Wait: time.Second, MaxWaiters: 16})
		tenants := []string{"a", "b", "c"}
		of := func(tenant string) onlyonce.Request {
			r := request("k")
			r.ID.Tenant = tenant
			return r
		}
		for _, tenant := range tenants {
			if _, err := g.Begin(t.Context(), of(tenant)); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		waits := func(tenant string) int {
			var rejected atomic.Int32
			began := time.Now()
			for range 20 {
				all.Go(func() {
					if _, err := g.Begin(t.Context(), of(tenant)); !errors.Is(err, onlyonce.ErrInFlight) {
						t.Errorf("error %v", err)
					}
					if time.Since(began) == 0 {
						rejected.Add(1)
					}
				})
			}
			synctest.Wait()
			return 20 - int(rejected.Load())
		}
		for i, want := range []int{12, 3, 1} {
			if got := waits(tenants[i]); got != want {
				t.Errorf("%d callers of tenant %s wait, want %d", got, tenants[i], want)
			}
		}
		all.Wait()
		if got := waits("c"); got != 12 {
			t.Errorf("once the others have left, %d callers wait, want 12", got)
		}
		all.Wait()
	})
}

func TestWait_AWaiterRunsTheCommandWhenTheOtherAttemptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := onlyonce.New(newStore(), onlyonce.Config{Wait: time.Minute})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			_ = a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateFailed, Error: "x"})
		}()
		got, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 2, nil })
		if err != nil || got.Attempt != 2 || got.Value != 2 {
			t.Fatalf("response %+v, error %v", got, err)
		}
	})
}

func TestWait_AWaiterTakesOverWhenTheLeaseLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Wait: time.Minute})
		crash(t, store, request("k"), 5*time.Second)
		began := time.Now()
		got, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 2, nil })
		if took := time.Since(began); err != nil || got.Attempt != 2 || took < 5*time.Second || took > 6*time.Second {
			t.Fatalf("response %+v, error %v after %v", got, err, took)
		}
	})
}
