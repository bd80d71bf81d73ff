package onlyonce_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
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
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
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
		if err := check(ctx, 0, time.Second); !errors.Is(err, gone) || !errors.As(err, new(*onlyonce.InFlightError)) {
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

// lookups counts the lookups of a store, and can make them hang.
type lookups struct {
	onlyonce.Store
	n     atomic.Int64
	hangs onlyonce.ID
}

func (l *lookups) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	l.n.Add(1)
	if id == l.hangs {
		<-ctx.Done()
		return onlyonce.Record{}, ctx.Err()
	}
	return l.Store.Lookup(ctx, id)
}

// waitForMany begins n commands there and waits for each of them here, twice. It returns the
// attempts.
func waitForMany(t *testing.T, here, there *onlyonce.Guard, n int, all *sync.WaitGroup) []*onlyonce.Attempt {
	t.Helper()
	attempts := make([]*onlyonce.Attempt, n)
	for i := range attempts {
		req := request(strconv.Itoa(i))
		var err error
		if attempts[i], err = there.Begin(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			all.Go(func() {
				if a, err := here.Begin(t.Context(), req); err != nil || !a.Replayed() {
					t.Errorf("%v: error %v", req.ID, err)
				}
			})
		}
	}
	synctest.Wait()
	return attempts
}

// settleForAll settles the attempts and waits until all callers that waited for them have noticed.
func settleForAll(t *testing.T, attempts []*onlyonce.Attempt, all *sync.WaitGroup) {
	t.Helper()
	for _, a := range attempts {
		if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted}); err != nil {
			t.Fatal(err)
		}
	}
	settled := time.Now()
	all.Wait()
	if took := time.Since(settled); took > 400*time.Millisecond {
		t.Errorf("noticed after %v", took)
	}
}

func TestWait_OnePollerReadsEachRecordAtMostAboutFourTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ids, seconds = 1000, 60
		store := &lookups{Store: newSimStore()}
		here := onlyonce.New(store, onlyonce.Config{Wait: time.Hour, Lease: time.Hour})
		there := onlyonce.New(store, onlyonce.Config{Lease: time.Hour})
		var all sync.WaitGroup
		before := runtime.NumGoroutine()
		attempts := waitForMany(t, here, there, ids, &all)
		time.Sleep(seconds * time.Second)
		if n := runtime.NumGoroutine() - before - 2*ids; n > ids/2 { // the runtime counts some that have ended
			t.Errorf("%d goroutines poll for %d commands", n, ids)
		}
		perID := float64(store.n.Load()) / ids
		if perID < seconds*3 || perID > seconds*4+10 {
			t.Errorf("%.1f lookups of each record in %d s", perID, seconds)
		}
		settleForAll(t, attempts, &all)
		was := store.n.Load()
		if time.Sleep(time.Minute); store.n.Load() != was {
			t.Error("records are read although nobody waits")
		}
	})
}

func TestWait_ALookupThatHangsDelaysNoOtherWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lookups{Store: newSimStore(), hangs: request("hangs").ID}
		here := onlyonce.New(store, onlyonce.Config{Wait: time.Hour, Lease: time.Hour})
		there := onlyonce.New(store, onlyonce.Config{Lease: time.Hour})
		if _, err := there.Begin(t.Context(), request("hangs")); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		var hanging sync.WaitGroup
		hanging.Go(func() { _, _ = here.Begin(ctx, request("hangs")) })
		time.Sleep(time.Second)
		var all sync.WaitGroup
		attempts := waitForMany(t, here, there, 50, &all)
		time.Sleep(10 * time.Second)
		settleForAll(t, attempts, &all)
		leave()
		hanging.Wait()
	})
}
