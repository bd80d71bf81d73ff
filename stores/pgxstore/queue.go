package pgxstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
)

// A queue lets callers write together. Who comes when nobody leads a lane leads
// it: it takes what is queued and runs it as one batch, while those who come
// meanwhile queue. There is no goroutine but the callers' own.
type queue[J any] struct {
	run        func(lane int, batch []*ticket[J]) // answers every ticket
	lanes      int                                // batches under way at a time
	minWaiting int                                // how many waiting callers justify another lane
	max        int                                // tickets in a batch

	mu      sync.Mutex
	free    []int // lanes that nobody leads
	waiting []*ticket[J]
	closed  chan struct{} // made by close, closed when nobody leads any more
}

// A ticket is a caller's place in the queue.
type ticket[J any] struct {
	job    J
	err    error    // once it is answered
	done   bool     // answered; only the writer looks at it
	taken  bool     // guarded by the queue's lock: it can't be left any more
	events chan int // lanes to lead, and then answered
}

// answered is the event that ends a wait.
const answered = -1

var (
	errClosed = errors.New("the store is closed")
	errPanic  = errors.New("a panic while writing: it is not known whether the call took effect")
)

func (q *queue[J]) init() {
	for lane := range q.lanes {
		q.free = append(q.free, lane)
	}
}

// do queues the job and returns when it is done. If ctx ends while it waits, do
// returns at once, and the job is not done.
func (q *queue[J]) do(ctx context.Context, job J) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &ticket[J]{job: job, events: make(chan int, q.lanes+1)}
	lane, err := q.join(t)
	if err != nil {
		return err
	}
	if lane != answered {
		q.lead(lane)
	}
	gone := ctx.Done()
	for {
		select {
		case e := <-t.events:
			if e == answered {
				return t.err
			}
			q.lead(e)
		case <-gone:
			if q.leave(t) {
				return ctx.Err()
			}
			gone = nil
		}
	}
}

// join puts the ticket into the queue, and returns the lane that its caller
// leads, or answered.
func (q *queue[J]) join(t *ticket[J]) (lane int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return answered, errClosed
	}
	q.waiting = append(q.waiting, t)
	if len(q.free) == 0 || len(q.free) < q.lanes && len(q.waiting) < q.minWaiting {
		return answered, nil
	}
	lane, q.free = q.free[0], q.free[1:]
	t.taken = true
	return lane, nil
}

// leave takes the ticket out of the queue unless it is being written.
func (q *queue[J]) leave(t *ticket[J]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.taken {
		return false
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(w *ticket[J]) bool { return w == t })
	return true
}

// lead runs one batch, and hands the lane on.
func (q *queue[J]) lead(lane int) {
	batch := q.take()
	defer func() {
		for _, t := range batch {
			q.answer(t, errPanic) // unless it was answered
		}
		q.next(lane)
	}()
	if len(batch) > 0 {
		q.run(lane, batch)
	}
}

// take takes what is queued, after it let those callers run that are about to queue.
func (q *queue[J]) take() []*ticket[J] {
	for range 4 {
		runtime.Gosched()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.waiting), q.max)
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	for _, t := range batch {
		t.taken = true
	}
	return batch
}

// next lets the first waiter lead the lane, if it is worth it.
func (q *queue[J]) next(lane int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	others := q.lanes - len(q.free) - 1
	if n := len(q.waiting); n > 0 && (others == 0 || n >= q.minWaiting) {
		t := q.waiting[0]
		t.taken = true
		t.events <- lane
		return
	}
	q.free = append(q.free, lane)
	if q.closed != nil && len(q.free) == q.lanes {
		close(q.closed)
	}
}

// answer ends the wait of a ticket's caller. Only the first answer counts.
func (q *queue[J]) answer(t *ticket[J], err error) {
	if !t.done {
		t.done, t.err = true, err
		t.events <- answered
	}
}

// close refuses new tickets and returns when those queued are answered.
func (q *queue[J]) close() {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = make(chan struct{})
		if len(q.free) == q.lanes {
			close(q.closed)
		}
	}
	closed := q.closed
	q.mu.Unlock()
	<-closed
}
