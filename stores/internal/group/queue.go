// Package group writes the jobs of concurrent callers together: group commit.
package group

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
)

// LongestShared is how many bytes of a result are written together with those of other
// callers. The others do not wait for a longer one.
const LongestShared = 64 << 10

// A Config says how a queue writes. Write and Max must be set.
type Config[J any] struct {
	// Write writes a batch on a lane and finishes its tickets, each with its own error, so
	// that one that fails does not fail its neighbors. If the tickets take turns, Write
	// returns then, which starts the turns; the last turn finishes the remaining tickets
	// and calls Next. Otherwise then is nil.
	Write func(lane int, batch []*Ticket[J]) (then func())

	// Turn continues a batch in the goroutine of the ticket's caller. A queue with turns
	// has one lane: a ticket that waits for its turn may leave, and must not lead then.
	Turn func(*Ticket[J])

	Max        int // how many tickets a batch has at most
	Lanes      int // how many batches are under way at a time; 0 is one
	MinWaiting int // how many waiting callers justify another lane
}

// A Queue groups the writes of concurrent callers. A caller that comes when a lane is
// free becomes its leader: it drains the queue and writes its tickets as one batch,
// while later callers queue. When the batch is done, a waiting caller leads the lane's
// next one. The queue has no goroutine of its own, and a caller that is alone does not
// wait.
type Queue[J any] struct {
	cfg Config[J]

	mu      sync.Mutex
	free    []int // lanes without a leader
	waiting []*Ticket[J]
	closed  chan struct{} // made by Close, closed when no lane has a leader
}

// New returns a queue. It panics if a queue with turns has several lanes.
func New[J any](c Config[J]) *Queue[J] {
	if c.Turn != nil && c.Lanes > 1 {
		panic("group: a queue with turns has one lane")
	}
	c.Lanes = max(c.Lanes, 1)
	q := &Queue[J]{cfg: c}
	for lane := range c.Lanes {
		q.free = append(q.free, lane)
	}
	return q
}

// A Ticket is a caller's place in the queue.
type Ticket[J any] struct {
	Job    J
	err    error // once it is finished
	done   bool  // finished; only the writer looks at it
	place  place // guarded by the queue's lock
	events chan event
}

// Finished reports whether the ticket is finished: its caller may use the job again. Only the
// writer may ask.
func (t *Ticket[J]) Finished() bool { return t.done }

// A place is where a ticket is.
type place int

const (
	placeWaiting place = iota // for its batch, or for its turn in one: may leave
	placeTaken                // being written: must stay
	placeLeft
)

// An event wakes a ticket's caller. A non-negative event is a lane to lead.
type event int

const (
	eventFinished event = -1
	eventTurn     event = -2
)

// The errors of Do that are the queue's own.
var (
	ErrClosed = errors.New("the store is closed")
	ErrPanic  = errors.New("a panic while writing: it is not known whether the call took effect")
)

// Do queues the job and returns when it is finished. If ctx ends while the job waits, Do
// returns at once, and the job is not done.
func (q *Queue[J]) Do(ctx context.Context, job J) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := q.newTicket(job)
	lane, leads, err := q.join(t)
	if err != nil {
		return err
	}
	if leads {
		q.lead(lane)
	}
	gone := ctx.Done()
	for {
		select {
		case e := <-t.events:
			switch e {
			case eventFinished:
				return t.err
			case eventTurn:
				q.cfg.Turn(t)
			default:
				q.lead(int(e))
			}
		case <-gone:
			if q.leave(t) {
				return ctx.Err()
			}
			gone = nil
		}
	}
}

// newTicket returns a ticket whose events never block: each lane may be offered to it
// once, and it gets one turn and is finished once.
func (q *Queue[J]) newTicket(job J) *Ticket[J] {
	return &Ticket[J]{Job: job, events: make(chan event, q.cfg.Lanes+2)}
}

// join puts the ticket into the queue, and says whether its caller leads a lane.
func (q *Queue[J]) join(t *Ticket[J]) (lane int, leads bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return 0, false, ErrClosed
	}
	q.waiting = append(q.waiting, t)
	if len(q.free) == 0 || len(q.free) < q.cfg.Lanes && len(q.waiting) < q.cfg.MinWaiting {
		return 0, false, nil
	}
	lane = q.free[0]
	q.free = slices.Delete(q.free, 0, 1)
	t.place = placeTaken
	return lane, true, nil
}

// leave takes the ticket out of the queue unless it is being written.
func (q *Queue[J]) leave(t *Ticket[J]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.place != placeWaiting {
		return false
	}
	t.place = placeLeft
	if i := slices.Index(q.waiting, t); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return true
}

// lead writes one batch on a lane.
func (q *Queue[J]) lead(lane int) {
	batch := q.drain()
	finished := false
	defer func() {
		if !finished {
			for _, t := range batch {
				q.Finish(t, ErrPanic)
			}
			q.Next(lane)
		}
	}()
	var then func()
	if len(batch) > 0 { // another lane may have drained the queue
		then = q.cfg.Write(lane, batch)
	}
	finished = true
	if then == nil {
		q.Next(lane)
		return
	}
	then()
}

// drain removes the next batch from the queue. It first yields, so that callers that
// are about to join get in.
func (q *Queue[J]) drain() []*Ticket[J] {
	for range 4 {
		runtime.Gosched()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.cfg.Max)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, t := range batch {
		t.place = placeTaken
	}
	return batch
}

// Next lets the first waiting caller lead the lane. If other lanes have leaders, it does so
// only if enough callers wait.
func (q *Queue[J]) Next(lane int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	others := q.cfg.Lanes - len(q.free) - 1
	if n := len(q.waiting); n > 0 && (others == 0 || n >= q.cfg.MinWaiting) {
		q.waiting[0].place = placeTaken
		q.waiting[0].events <- event(lane)
		return
	}
	q.free = append(q.free, lane)
	q.closeIfIdle()
}

// Finish ends the wait of a ticket's caller with an error or nil. Only the first call
// counts.
func (q *Queue[J]) Finish(t *Ticket[J], err error) {
	if !t.done {
		t.done, t.err = true, err
		t.events <- eventFinished
	}
}

// Offer lets a ticket that was taken wait for a turn: until then it may leave.
func (q *Queue[J]) Offer(t *Ticket[J]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.place = placeWaiting
}

// GrantTurn gives the ticket its turn. It reports false if the caller has left.
func (q *Queue[J]) GrantTurn(t *Ticket[J]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.place == placeLeft {
		return false
	}
	t.place = placeTaken
	t.events <- eventTurn
	return true
}

// Back puts tickets back to the front of the queue, unless they have left.
func (q *Queue[J]) Back(tickets []*Ticket[J]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	front := make([]*Ticket[J], 0, len(tickets)+len(q.waiting))
	for _, t := range tickets {
		if t.place != placeLeft {
			t.place = placeWaiting
			front = append(front, t)
		}
	}
	q.waiting = append(front, q.waiting...)
}

// Close rejects new tickets and returns when those in the queue are finished.
func (q *Queue[J]) Close() {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = make(chan struct{})
		q.closeIfIdle()
	}
	closed := q.closed
	q.mu.Unlock()
	<-closed
}

// closeIfIdle ends the wait of Close once no lane has a leader. The caller holds the lock.
func (q *Queue[J]) closeIfIdle() {
	if q.closed != nil && len(q.free) == q.cfg.Lanes {
		close(q.closed)
	}
}
