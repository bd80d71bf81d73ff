package sqlstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
)

// A queue groups the writes of concurrent callers. The first caller becomes the
// leader: it drains the queue and writes its tickets as one batch, while later callers
// queue. When the batch is done, a waiting caller leads the next one. The queue has no
// goroutine of its own, and a caller that is alone does not wait.
type queue[J any] struct {
	// write writes a batch and answers its tickets. If the tickets take turns, it
	// returns then, which starts the turns; the last turn answers the tickets that are
	// left and calls next. Otherwise then is nil.
	write func(batch []*ticket[J]) (then func())

	// turn continues a batch in the goroutine of the ticket's caller.
	turn func(*ticket[J])

	max int // how many tickets a batch has at most

	mu      sync.Mutex
	led     bool
	waiting []*ticket[J]
	closed  chan struct{} // made by close, closed when nobody leads any more
}

// A ticket is a caller's place in the queue.
type ticket[J any] struct {
	job    J
	err    error // once it is answered
	done   bool  // answered; only the writer looks at it
	place  place // guarded by the queue's lock
	events chan event
}

func newTicket[J any](job J) *ticket[J] {
	return &ticket[J]{job: job, events: make(chan event, 1)}
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
	errPanic  = errors.New("a panic while writing: it is not known whether the call took effect")
)

// do queues the ticket and returns when it is answered. If ctx ends while it
// waits, do returns at once, and the job is not done.
func (q *queue[J]) do(ctx context.Context, t *ticket[J]) error {
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
				q.turn(t)
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
func (q *queue[J]) join(t *ticket[J]) (leads bool, err error) {
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
func (q *queue[J]) leave(t *ticket[J]) bool {
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
func (q *queue[J]) lead() {
	batch := q.drain()
	whole := false
	defer func() {
		if !whole {
			for _, t := range batch {
				q.answer(t, errPanic)
			}
			q.next()
		}
	}()
	then := q.write(batch)
	whole = true
	if then == nil {
		then = q.next
	}
	then()
}

// drain removes the next batch from the queue. It first yields, so that callers that
// are about to join get in.
func (q *queue[J]) drain() []*ticket[J] {
	for range 4 {
		runtime.Gosched()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.max)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, t := range batch {
		t.place = placeTaken
	}
	return batch
}

// next lets the first waiter lead.
func (q *queue[J]) next() {
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

// answer ends the wait of a ticket's caller. Only the first answer counts.
func (q *queue[J]) answer(t *ticket[J], err error) {
	if !t.done {
		t.done, t.err = true, err
		t.events <- eventAnswered
	}
}

// offer lets a ticket that was taken wait for a turn: until then it may leave.
func (q *queue[J]) offer(t *ticket[J]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.place = placeWaiting
}

// grantTurn gives the ticket its turn. It reports false if the caller has left.
func (q *queue[J]) grantTurn(t *ticket[J]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.place == placeLeft {
		return false
	}
	t.place = placeTaken
	t.events <- eventTurn
	return true
}

// back puts tickets back to the front of the queue, unless they have left.
func (q *queue[J]) back(tickets []*ticket[J]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	front := make([]*ticket[J], 0, len(tickets)+len(q.waiting))
	for _, t := range tickets {
		if t.place != placeLeft {
			t.place = placeWaiting
			front = append(front, t)
		}
	}
	q.waiting = append(front, q.waiting...)
}

// close refuses new tickets and returns when those queued are answered.
func (q *queue[J]) close() {
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
