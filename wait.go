package onlyonce

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/shares"
)

// How often a queue of waiters polls the store, in addition to every other wake-up.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
)

// waiters holds the callers that wait for the attempts of others. One poller looks at the
// records for all of them.
type waiters struct {
	store            Store
	maxAll, maxPerID int

	all      atomic.Int64 // read without the lock by attempts that end
	mu       sync.Mutex
	byID     map[ID]*waitQueue
	byTenant map[string]int // the callers of each tenant that wait
	poller   poller
}

// A waitQueue holds the callers that wait for one ID.
type waitQueue struct {
	id      ID
	waiting int
	changed chan struct{}   // closed and replaced when the record may have changed
	ctx     context.Context // ends when the queue is empty
	close   context.CancelFunc
	every   time.Duration // until the next poll
}

// enter takes a place in the ID's queue. It reports false if the queue is full, or if
// the places that are left are for other tenants.
func (ws *waiters) enter(id ID) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.byID[id]
	free := ws.maxAll - int(ws.all.Load())
	if !shares.MayTake(ws.byTenant[id.Tenant], free) || q != nil && q.waiting >= ws.maxPerID {
		return false
	}
	if q == nil {
		ctx, cancel := context.WithCancel(context.Background())
		q = &waitQueue{id: id, changed: make(chan struct{}), ctx: ctx, close: cancel, every: firstPoll}
		if ws.byID == nil {
			ws.byID, ws.byTenant = make(map[ID]*waitQueue), make(map[string]int)
		}
		ws.byID[id] = q
		if waiter, ok := ws.store.(Waiter); ok {
			go ws.listen(waiter, q)
		}
		ws.schedule(q)
	}
	q.waiting++
	ws.byTenant[id.Tenant]++
	ws.all.Add(1)
	return true
}

func (ws *waiters) leave(id ID) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all.Add(-1)
	if ws.byTenant[id.Tenant]--; ws.byTenant[id.Tenant] == 0 {
		delete(ws.byTenant, id.Tenant)
	}
	q := ws.byID[id]
	if q.waiting--; q.waiting == 0 {
		q.close()
		delete(ws.byID, id)
		if len(ws.byID) == 0 {
			ws.poller.nudge()
		}
	}
}

// nextChange returns a channel that is closed at the next change, for a waiter that has
// entered. A waiter that calls nextChange, then looks at the store, and then waits misses
// no change.
func (ws *waiters) nextChange(id ID) <-chan struct{} {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.byID[id].changed
}

// wake makes the callers that wait for id look again.
func (ws *waiters) wake(id ID) {
	if ws.all.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.byID[id]; q != nil {
		q.wake()
	}
}

// wake is called with the lock held.
func (q *waitQueue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// listen wakes the queue whenever the store's Waiter says that its record may have
// changed, until the queue is empty. After an error, polling goes on.
func (ws *waiters) listen(waiter Waiter, q *waitQueue) {
	for q.ctx.Err() == nil {
		if waiter.Wait(q.ctx, q.id) == nil && q.ctx.Err() == nil {
			ws.wake(q.id)
		} else {
			pause(q.ctx, lastPoll)
		}
	}
}

// mayHaveSettled reports whether no attempt is running any more, as far as the record
// tells.
func (ws *waiters) mayHaveSettled(q *waitQueue) bool {
	r, err := ws.store.Lookup(q.ctx, q.id)
	return err != nil || r.State != StateProcessing || r.LeaseLeft <= 0
}

// pause waits for about d, jittered by a quarter, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d - d/4 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// A waiter is one caller's wait for a command that another attempt runs.
type waiter struct {
	waiters *waiters
	id      ID
	limit   time.Duration // not positive: does not wait
	entered bool
	changed <-chan struct{}
	over    *time.Timer
}

// subscribe is called before the claim is sent, so that no change after the
// store's response is missed.
func (w *waiter) subscribe() {
	if w.entered {
		w.changed = w.waiters.nextChange(w.id)
	}
}

// wait returns nil when the caller must claim again, ErrInFlight when it may not
// wait, or no longer, and the context's cause when it has ended.
func (w *waiter) wait(ctx context.Context) error {
	if !w.entered {
		if w.limit <= 0 || !w.waiters.enter(w.id) {
			return ErrInFlight
		}
		w.entered = true
		w.over = time.NewTimer(w.limit)
		return nil
	}
	select {
	case <-w.changed:
		return nil
	case <-w.over.C:
		return ErrInFlight
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *waiter) leave() {
	if w.entered {
		w.over.Stop()
		w.waiters.leave(w.id)
	}
}
