//go:build linux

package ledger

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// lease is the lease of every attempt. An attempt's context must end a quarter of the lease
// before the lease does.
const lease = 2 * time.Second

const (
	interval  = 5 * time.Millisecond  // of measureDelay
	tolerance = 20 * time.Millisecond // for a context that ends late
)

// A watch is a store that records when each lease ends at the latest, and counts the contexts
// that outlive it.
type watch struct {
	onlyonce.Store
	outlived atomic.Int64
	measured atomic.Int64 // intervals of measureDelay
	unstored sync.Map     // keys whose response was returned but could not be recorded

	mu   sync.Mutex
	ends map[string]time.Time // of the leases, by owner

	slowest atomic.Int64 // nanoseconds for which the process should have run and did not
}

func newWatch(s onlyonce.Store) *watch {
	w := &watch{Store: s, ends: make(map[string]time.Time)}
	go w.measureDelay()
	return w
}

// measureDelay measures for how long the machine has not run the process, at most.
func (w *watch) measureDelay() {
	for last := time.Now(); ; {
		time.Sleep(interval)
		now := time.Now()
		if gap := now.Sub(last) - interval; int64(gap) > w.slowest.Load() {
			w.slowest.Store(int64(gap))
		}
		last = now
		w.measured.Add(1)
	}
}

// lateness returns the longest such time, including the current one: it waits for two more
// measurements.
func (w *watch) lateness() time.Duration {
	for seen := w.measured.Load(); w.measured.Load() < seen+2; {
		time.Sleep(interval)
	}
	return time.Duration(w.slowest.Load())
}

func (w *watch) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	sent := time.Now()
	r, err := w.Store.Claim(ctx, c)
	if err == nil && r.Owner == c.Owner {
		w.extend(c.Owner, sent)
	}
	return r, err
}

var errRenewal = errors.New("the renewal failed, as the test demands")

// Renew fails for every fourth owner, whose context must then end in time.
func (w *watch) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if h.Owner[0]%4 == 0 {
		return errRenewal
	}
	sent := time.Now()
	err := w.Store.Renew(ctx, h, lease, steps)
	if err == nil {
		w.extend(h.Owner, sent)
	}
	return err
}

func (w *watch) extend(owner string, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := sent.Add(lease); end.After(w.ends[owner]) {
		w.ends[owner] = end
	}
}

// simulateWork takes as long as a command might before it writes its row: mostly a few
// milliseconds, and sometimes longer than a lease. A context that is alive although its lease
// has ended, by more than the machine's lateness, counts as one that outlives its lease.
func (w *watch) simulateWork(ctx context.Context) {
	d := time.Duration(rand.Int64N(int64(3 * time.Millisecond)))
	if rand.IntN(100) == 0 {
		d = time.Duration(rand.Int64N(int64(lease * 3 / 2)))
	}
	owner := onlyonce.Current(ctx).Record().Owner
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		select {
		case <-time.After(min(10*time.Millisecond, d)):
		case <-ctx.Done():
		}
		w.mu.Lock()
		until := w.ends[owner]
		w.mu.Unlock()
		if now := time.Now(); ctx.Err() == nil && now.After(until.Add(tolerance)) && now.After(until.Add(w.lateness()).Add(tolerance)) {
			w.outlived.Add(1)
			return
		}
	}
}

// observe stores the keys whose responses could not be recorded.
func (w *watch) observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomeUnrecorded || e.Outcome == onlyonce.OutcomeLost {
		w.unstored.Store(e.Record.ID.Key, true)
	}
}
