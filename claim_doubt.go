package onlyonce

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	maxDoubts = 1000 // claims that a Guard looks for; more are left to lapse
	maxLooks  = 16   // concurrent lookups, so that a store that does not respond is not flooded

	longestLookPause = 30 * time.Second
	longestLooking   = time.Hour // after the lease, for a claim that would wait for a person
)

// doubts holds the claims of a Guard that got no response from the store.
type doubts struct {
	mu      sync.Mutex
	claims  int      // the number of claims that are looked for
	looking int      // the number of lookups in progress
	due     []func() // lookups that wait for their turn
}

// releaseDoubtful releases a claim that got no response, so that no caller has
// to wait for its lease. It returns at once. A server may still be working on a
// claim whose caller has left, so a claim that is not found is looked up again
// for more than a second, and for as long as the lease would last while the
// store is unreachable. If a person would have to decide about it then, because
// nobody takes it over, it is looked up for an hour more. Timers do this, because
// a goroutine would outlive its caller.
func (g *Guard) releaseDoubtful(ctx context.Context, c Claim, keep time.Duration) {
	if g.inTx || !g.doubts.add() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	end := time.Now().Add(c.Lease)
	if c.Keep == KeepForever {
		end = end.Add(longestLooking)
	}
	var look func(pause time.Duration)
	look = func(pause time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, min(100*pause, c.Lease, time.Until(end)))
		defer cancel()
		err := g.releaseFound(ctx, c, keep)
		if err == nil || time.Until(end) < pause || errors.Is(err, ErrNotFound) && pause > time.Second {
			g.doubts.remove()
			return
		}
		time.AfterFunc(pause, func() { g.doubts.inTurn(func() { look(min(5*pause, longestLookPause)) }) })
	}
	go g.doubts.inTurn(func() { look(10 * time.Millisecond) })
}

// releaseFound releases the claim if it is found. Nothing ran under it, so the
// record returns to the state in which the claim found it, and only the number
// of attempts shows that there was a claim. ErrNotFound means that the claim
// may still arrive.
func (g *Guard) releaseFound(ctx context.Context, c Claim, keep time.Duration) error {
	rec, err := g.store.Lookup(ctx, c.ID)
	switch {
	case err != nil:
		return err
	case c.Takes(rec):
		return ErrNotFound
	case rec.Owner != c.Owner, rec.State != StateProcessing:
		return nil
	}
	s := releasedAs(rec, c.TakeUnknown)
	switch s.State {
	case StateUnknown:
		s.Keep = g.keepUnknown(keep)
	case StateFailed:
		s.Keep = keep
	}
	if err := g.store.Settle(ctx, Hold{ID: c.ID, Owner: c.Owner, Fence: rec.Fence}, s); err != nil {
		return err
	}
	g.waiters.wake(c.ID)
	return nil
}

// add reports whether one more claim may be looked up.
func (d *doubts) add() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims == maxDoubts {
		return false
	}
	d.claims++
	return true
}

func (d *doubts) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.claims--
}

// inTurn calls look, or leaves it to a lookup that is in progress.
func (d *doubts) inTurn(look func()) {
	d.mu.Lock()
	if d.looking == maxLooks {
		d.due = append(d.due, look)
		d.mu.Unlock()
		return
	}
	d.looking++
	for look != nil {
		d.mu.Unlock()
		look()
		d.mu.Lock()
		if look = nil; len(d.due) > 0 {
			look, d.due = d.due[0], d.due[1:]
		}
	}
	d.looking--
	d.mu.Unlock()
}
