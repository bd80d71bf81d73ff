// Package group writes the jobs of concurrent callers together: group commit.
package group

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
)

// A Queue groups the writes of concurrent callers. The first caller becomes the
// leader: it drains the queue and writes its tickets as one batch, while later callers
// queue. When the batch is done, a waiting caller leads the next one. The queue has no
// goroutine of its own, and a caller that is alone does not wait.
type Queue[J any] struct {
	// Write writes a batch and answers its tickets. If the tickets take turns, it
	// returns then, which starts the turns; the last turn answers the tickets that are
	// left and calls next. Otherwise then is nil.
	Write func(batch []*Ticket[J]) (then func())

	// Turn continues a batch in the goroutine of the ticket's caller.
	Turn func(*Ticket[J])

	Max int // how many tickets a batch has at most

	mu      sync.Mutex
	led     bool
	waiting []*Ticket[J]
	closed  chan struct{} // made by close, closed when nobody leads any more
}

// A Ticket is a caller's place in the queue.
type Ticket[J any] struct {
	Job    J
	err    error // once it is answered
	done   bool  // answered; only the writer looks at it
	place  place // guarded by the queue's lock
	events chan event
}

func NewTicket[J any](job J) *Ticket[J] {
	return &Ticket[J]{Job: job, events: make(chan event, 1)}
}

type place int

const (
	placeWaiting place = iota // for its batch, or for its turn in one: may leave
	placeTaken                // being written
	placeLeft
)

type event int

const (
	eventAnswered event = iota
	eventLead
	eventTurn
)

var (
	errClosed = errors.New("the store is closed")
	ErrPanic  = errors.New("a panic while writing: it is not known whether the call took effect")
)

// Do queues the ticket and returns when it is answered. If ctx ends while it
// waits, do returns at once, and the job is not done.
func (q *Queue[J]) Do(ctx context.Context, t *Ticket[J]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leads, err := q.join(t)
	if err != nil {
		return err
	}
	if leads {
		q.lead()
	}
	gone := ctx.Done()
	for {
		select {
		case e := <-t.events:
			switch e {
			case eventAnswered:
				return t.err
			case eventLead:
				q.lead()
			case eventTurn:
				q.Turn(t)
			}
		case <-gone:
			if q.leave(t) {
				return ctx.Err()
			}
			gone = nil
		}
	}
}

// join puts the ticket into the queue, and says whether its caller leads.
func (q *Queue[J]) join(t *Ticket[J]) (leads bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return false, errClosed
	}
	q.waiting = append(q.waiting, t)
	if q.led {
		return false, nil
	}
	q.led, t.place = true, placeTaken
	return true, nil
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

// lead writes one batch.
func (q *Queue[J]) lead() {
	batch := q.drain()
	whole := false
	defer func() {
		if !whole {
			for _, t := range batch {
				q.Answer(t, ErrPanic)
			}
			q.Next()
		}
	}()
	then := q.Write(batch)
	whole = true
	if then == nil {
		then = q.Next
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
	n := min(len(q.waiting), q.Max)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, t := range batch {
		t.place = placeTaken
	}
	return batch
}

// Next lets the first waiter lead.
func (q *Queue[J]) Next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		q.waiting[0].place = placeTaken
		q.waiting[0].events <- eventLead
		return
	}
	q.led = false
	if q.closed != nil {
		close(q.closed)
	}
}

// Answer ends the wait of a ticket's caller. Only the first answer counts.
func (q *Queue[J]) Answer(t *Ticket[J], err error) {
	if !t.done {
		t.done, t.err = true, err
		t.events <- eventAnswered
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

// Close refuses new tickets and returns when those queued are answered.
func (q *Queue[J]) Close() {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = make(chan struct{})
		if !q.led {
			close(q.closed)
		}
	}
	closed := q.closed
	q.mu.Unlock()
	<-closed
}
