package onlyonce

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// How often a queue of waiters polls the store, in addition to every other wake-up.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
)

// waiters holds the callers that wait for the attempts of others.
type waiters struct {
	store            Store
	maxAll, maxPerID int

	all  atomic.Int64 // read without the lock by attempts that end
	mu   sync.Mutex
	byID map[ID]*waitQueue
}

// A waitQueue holds the callers that wait for one ID. One goroutine polls for all of
// them.
type waitQueue struct {
	waiting int
	changed chan struct{} // closed, and made anew, when the record may have changed
	close   context.CancelFunc
}

// enter takes a place in the ID's queue. It reports false if the queue is full.
func (rs *waiters) enter(id ID) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.byID[id]
	if rs.all.Load() >= int64(rs.maxAll) || r != nil && r.waiting >= rs.maxPerID {
		return false
	}
	if r == nil {
		ctx, cancel := context.WithCancel(context.Background())
		r = &waitQueue{changed: make(chan struct{}), close: cancel}
		if rs.byID == nil {
			rs.byID = make(map[ID]*waitQueue)
		}
		rs.byID[id] = r
		go rs.watch(ctx, id)
	}
	r.waiting++
	rs.all.Add(1)
	return true
}

func (rs *waiters) leave(id ID) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all.Add(-1)
	r := rs.byID[id]
	if r.waiting--; r.waiting == 0 {
		r.close()
		delete(rs.byID, id)
	}
}

// next returns what is closed at the next change, for a waiter that has
// entered. A waiter that looks at the store after next, and before it waits, misses
// nothing.
func (rs *waiters) next(id ID) <-chan struct{} {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.byID[id].changed
}

// wake makes the callers that wait for id look again.
func (rs *waiters) wake(id ID) {
	if rs.all.Load() == 0 {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.byID[id]; r != nil {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// watch wakes the queue of id whenever its record may have changed, until the queue is
// empty.
func (rs *waiters) watch(ctx context.Context, id ID) {
	for every := firstPoll; ctx.Err() == nil; every = min(2*every, lastPoll) {
		if rs.waitForStore(ctx, id, every) || rs.mayHaveSettled(ctx, id) {
			rs.wake(id)
		}
	}
}

// waitForStore waits for the store's Waiter, at most for about d, and reports whether
// it said that the record may have changed.
func (rs *waiters) waitForStore(ctx context.Context, id ID, d time.Duration) bool {
	waiter, ok := rs.store.(Waiter)
	if !ok {
		pause(ctx, d)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if waiter.Wait(ctx, id) == nil {
		return ctx.Err() == nil
	}
	<-ctx.Done()
	return false
}

// mayHaveSettled reports whether no attempt is running any more, as far as the record
// tells.
func (rs *waiters) mayHaveSettled(ctx context.Context, id ID) bool {
	r, err := rs.store.Lookup(ctx, id)
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

// subscribe is called before the store is asked, so that no change after the
// store's answer is missed.
func (t *waiter) subscribe() {
	if t.entered {
		t.changed = t.waiters.next(t.id)
	}
}

// wait returns nil when the store is to be asked again, ErrInFlight when the
// caller may not wait, or no longer, and the context's cause when it has ended.
func (t *waiter) wait(ctx context.Context) error {
	if !t.entered {
		if t.limit <= 0 || !t.waiters.enter(t.id) {
			return ErrInFlight
		}
		t.entered = true
		t.over = time.NewTimer(t.limit)
		return nil
	}
	select {
	case <-t.changed:
		return nil
	case <-t.over.C:
		return ErrInFlight
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *waiter) leave() {
	if t.entered {
		t.over.Stop()
		t.waiters.leave(t.id)
	}
}
