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

// lease is that of every attempt. A context must end a quarter of it before the
// lease does.
const lease = 2 * time.Second

const (
	beat      = 5 * time.Millisecond  // of the pulse
	tolerated = 20 * time.Millisecond // of a context that ends late
)

// A watch is a store that notes until when each hold lasts at most, and knows
// which contexts outlive that.
type watch struct {
	onlyonce.Store
	outlived atomic.Int64
	beats    atomic.Int64 // of the pulse
	unstored sync.Map     // keys whose response was given and could not be recorded

	mu   sync.Mutex
	ends map[string]time.Time // of the leases, by owner

	slowest atomic.Int64 // how long the process did not run when it should
}

func newWatch(s onlyonce.Store) *watch {
	w := &watch{Store: s, ends: make(map[string]time.Time)}
	go w.pulse()
	return w
}

// pulse measures for how long the machine lets the process wait at most.
func (w *watch) pulse() {
	for last := time.Now(); ; {
		time.Sleep(beat)
		now := time.Now()
		if gap := now.Sub(last) - beat; int64(gap) > w.slowest.Load() {
			w.slowest.Store(int64(gap))
		}
		last = now
		w.beats.Add(1)
	}
}

// lateness is how late the machine has been at most, now included: a process that
// was not run for a while finds out when its pulse has beaten again.
func (w *watch) lateness() time.Duration {
	for seen := w.beats.Load(); w.beats.Load() < seen+2; {
		time.Sleep(beat)
	}
	return time.Duration(w.slowest.Load())
}

func (w *watch) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	sent := time.Now()
	r, err := w.Store.Claim(ctx, c)
	if err == nil && r.Owner == c.Owner {
		w.held(c.Owner, sent)
	}
	return r, err
}

var errRenewal = errors.New("the renewal failed at once, as it was to")

// Renew fails at once for every fourth hold: its context has to end in time.
func (w *watch) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if h.Owner[0]%4 == 0 {
		return errRenewal
	}
	sent := time.Now()
	err := w.Store.Renew(ctx, h, lease, steps)
	if err == nil {
		w.held(h.Owner, sent)
	}
	return err
}

func (w *watch) held(owner string, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := sent.Add(lease); end.After(w.ends[owner]) {
		w.ends[owner] = end
	}
}

// works is what a function does before its row is written: mostly little, and
// now and then more than a lease lasts. A context that is alive when its lease
// has ended, by more than the machine is late, outlives it.
func (w *watch) works(ctx context.Context) {
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
		if now := time.Now(); ctx.Err() == nil && now.After(until.Add(tolerated)) && now.After(until.Add(w.lateness()).Add(tolerated)) {
			w.outlived.Add(1)
			return
		}
	}
}

// observe notes the responses that could not be recorded.
func (w *watch) observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomeUnrecorded || e.Outcome == onlyonce.OutcomeLost {
		w.unstored.Store(e.Record.ID.Key, true)
	}
}
