package group

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A desk is a queue whose batches take a second to write.
type desk struct {
	*Queue[int]
	mu      sync.Mutex
	batches [][]int // the jobs of each
	led     []int   // lanes on which a batch is under way
	shared  bool    // two batches were under way on one lane
	fail    error   // the response to every job
}

// buggy is a job that makes the leader of its batch panic.
const buggy = -1

func newDesk(max int) *desk {
	d := new(desk)
	d.Queue = New(Config[int]{Write: d.write, Max: max})
	return d
}

func (d *desk) write(lane int, batch []*Ticket[int]) (then func()) {
	var jobs []int
	for _, t := range batch {
		jobs = append(jobs, t.Job)
	}
	d.mu.Lock()
	d.batches = append(d.batches, jobs)
	d.shared = d.shared || slices.Contains(d.led, lane)
	d.led = append(d.led, lane)
	d.mu.Unlock()
	time.Sleep(time.Second)
	d.mu.Lock()
	d.led = slices.DeleteFunc(d.led, func(l int) bool { return l == lane })
	d.mu.Unlock()
	if slices.Contains(jobs, buggy) {
		panic("a bug in the driver")
	}
	for _, t := range batch {
		d.Finish(t, d.fail)
	}
	return nil
}

// begin queues a job, and returns when its caller waits.
func (d *desk) begin(ctx context.Context, job int) (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- d.Do(ctx, job) }()
	synctest.Wait()
	return ended
}

func (d *desk) wantBatches(t *testing.T, want ...[]int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared {
		t.Error("two batches were under way on one lane")
	}
	if fmt.Sprint(d.batches) != fmt.Sprint(want) {
		t.Errorf("the batches are %v, want %v", d.batches, want)
	}
}

func wantErr(t *testing.T, ended chan error, want error) {
	t.Helper()
	if err := <-ended; !errors.Is(err, want) {
		t.Errorf("the caller got %v, want %v", err, want)
	}
}

func TestQueue_CallersThatComeWhileABatchIsWrittenAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		first := d.begin(t.Context(), 1)
		var others []chan error
		for job := range 3 {
			others = append(others, d.begin(t.Context(), 2+job))
		}
		for _, ended := range append(others, first) {
			wantErr(t, ended, nil)
		}
		wantErr(t, d.begin(t.Context(), 5), nil)
		d.wantBatches(t, []int{1}, []int{2, 3, 4}, []int{5})
	})
}

func TestQueue_ABatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(2)
		var all []chan error
		for job := range 6 {
			all = append(all, d.begin(t.Context(), job))
		}
		for _, ended := range all {
			wantErr(t, ended, nil)
		}
		d.wantBatches(t, []int{0}, []int{1, 2}, []int{3, 4}, []int{5})
	})
}

func TestQueue_ACallerWhoseContextEndsInTheQueueLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		first := d.begin(t.Context(), 1)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		leaving, staying := d.begin(ctx, 2), d.begin(t.Context(), 3)
		cancel()
		wantErr(t, leaving, context.Canceled)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it waited %v", waited)
		}
		wantErr(t, first, nil)
		wantErr(t, staying, nil)
		d.wantBatches(t, []int{1}, []int{3})
	})
}

func TestQueue_ACallerWhoseContextHasEndedIsNotQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, d.begin(ctx, 1), context.Canceled)
		d.wantBatches(t)
	})
}

func TestQueue_ACallerWhoseContextEndsWhileItIsWrittenGetsTheResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		ctx, cancel := context.WithCancel(t.Context())
		first, leader, follower := d.begin(ctx, 1), d.begin(ctx, 2), d.begin(ctx, 3)
		time.Sleep(1500 * time.Millisecond) // the second batch is being written
		cancel()
		for _, ended := range []chan error{first, leader, follower} {
			wantErr(t, ended, nil)
		}
		d.wantBatches(t, []int{1}, []int{2, 3})
	})
}

func TestQueue_EveryoneInABatchGetsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		d.fail = errors.New("the disk is full")
		for _, ended := range []chan error{d.begin(t.Context(), 1), d.begin(t.Context(), 2), d.begin(t.Context(), 3)} {
			wantErr(t, ended, d.fail)
		}
	})
}

func TestQueue_APanicOfTheLeaderStrandsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(10)
		first := d.begin(t.Context(), 1)
		caught := make(chan any, 1)
		go func() {
			defer func() { caught <- recover() }()
			_ = d.Do(t.Context(), buggy)
		}()
		synctest.Wait()
		follower := d.begin(t.Context(), 2)
		wantErr(t, first, nil)
		synctest.Wait()
		after := d.begin(t.Context(), 3)
		wantErr(t, follower, ErrPanic)
		if p := <-caught; p != "a bug in the driver" {
			t.Errorf("the leader panicked with %v", p)
		}
		wantErr(t, after, nil)
		d.wantBatches(t, []int{1}, []int{buggy, 2}, []int{3})
	})
}

func TestQueue_CloseEndsWhatIsQueuedAndRejectsWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1)
		first, second := d.begin(t.Context(), 1), d.begin(t.Context(), 2)
		began := time.Now()
		go func() {
			synctest.Wait()
			wantErr(t, d.begin(t.Context(), 3), ErrClosed)
		}()
		d.Close()
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("close took %v", waited)
		}
		wantErr(t, first, nil)
		wantErr(t, second, nil)
		d.Close()
		d.wantBatches(t, []int{1}, []int{2})
	})
}

// A relay is a queue whose batches consist of turns of a second each.
type relay struct {
	*Queue[func()]
	todo []*Ticket[func()]
}

func newRelay() *relay {
	r := new(relay)
	r.Queue = New(Config[func()]{Max: 10, Turn: r.run, Write: func(_ int, batch []*Ticket[func()]) func() {
		r.todo = batch
		for _, t := range batch {
			r.Offer(t)
		}
		return r.pass
	}})
	return r
}

func (r *relay) pass() {
	for len(r.todo) > 0 {
		t := r.todo[0]
		r.todo = r.todo[1:]
		if r.GrantTurn(t) {
			return
		}
	}
	r.Next(0)
}

func (r *relay) run(t *Ticket[func()]) {
	defer r.pass()
	time.Sleep(time.Second)
	t.Job()
	r.Finish(t, nil)
}

func TestQueue_ATurnIsTakenByItsOwnCallerOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := newRelay(), time.Now()
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				own := new(int)
				if err := r.Do(t.Context(), func() { *own = i + 1 }); err != nil || *own != i+1 {
					t.Errorf("caller %d: %v, ran as %d", i, err, *own)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("four turns took %v", took)
		}
	})
}

func TestQueue_ACallerThatLeavesBeforeItsTurnIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelay()
		var ran []int
		begin := func(ctx context.Context, i int) chan error {
			ended := make(chan error, 1)
			go func() { ended <- r.Do(ctx, func() { ran = append(ran, i) }) }()
			synctest.Wait()
			return ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third, fourth := begin(t.Context(), 1), begin(t.Context(), 2), begin(ctx, 3), begin(t.Context(), 4)
		time.Sleep(1500 * time.Millisecond) // it is the second's turn
		cancel()
		wantErr(t, third, context.Canceled)
		for _, ended := range []chan error{first, second, fourth} {
			wantErr(t, ended, nil)
		}
		if !slices.Equal(ran, []int{1, 2, 4}) {
			t.Errorf("ran %v", ran)
		}
	})
}

func TestQueue_ATurnThatEndsItsGoroutineStrandsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelay()
		go func() { _ = r.Do(t.Context(), runtime.Goexit) }()
		synctest.Wait()
		if err := r.Do(t.Context(), func() {}); err != nil {
			t.Error(err)
		}
	})
}

func TestQueue_WhatIsPutBackComesFirst(t *testing.T) {
	q := New(Config[string]{})
	q.free = nil // its lane is led
	a, b, gone, c := q.newTicket("a"), q.newTicket("b"), q.newTicket("gone"), q.newTicket("c")
	if _, leads, err := q.join(c); leads || err != nil {
		t.Fatal(leads, err)
	}
	gone.place = placeLeft
	q.Back([]*Ticket[string]{a, gone, b})
	var got []string
	for _, t := range q.waiting {
		got = append(got, t.Job)
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("the queue is %v", got)
	}
}

func newDeskWithLanes(lanes, minWaiting int) *desk {
	d := new(desk)
	d.Queue = New(Config[int]{Write: d.write, Max: 2, Lanes: lanes, MinWaiting: minWaiting})
	return d
}

func TestQueue_AnotherLaneIsLedOnlyWhenEnoughCallersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, began := newDeskWithLanes(2, 3), time.Now()
		var all []chan error
		for job := range 4 {
			all = append(all, d.begin(t.Context(), job))
		}
		d.wantBatches(t, []int{0}, []int{1, 2}) // the fourth made three wait, and leads; its own job waits
		for _, ended := range all {
			wantErr(t, ended, nil)
		}
		d.wantBatches(t, []int{0}, []int{1, 2}, []int{3})
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("three batches on two lanes took %v", took)
		}
	})
}

func TestQueue_ALaneHasOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeskWithLanes(3, 1)
		var want [][]int
		for job := range 12 { // three at a time, on lanes that are led again and again
			_ = d.begin(t.Context(), job)
			time.Sleep(400 * time.Millisecond)
			want = append(want, []int{job})
		}
		d.Close()
		d.wantBatches(t, want...)
	})
}

func TestQueue_APanicOnOneLaneLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeskWithLanes(2, 1)
		caught := make(chan any, 1)
		go func() {
			defer func() { caught <- recover() }()
			_ = d.Do(t.Context(), buggy)
		}()
		synctest.Wait()
		other := d.begin(t.Context(), 1)
		wantErr(t, other, nil)
		if p := <-caught; p != "a bug in the driver" {
			t.Errorf("the leader panicked with %v", p)
		}
		wantErr(t, d.begin(t.Context(), 2), nil)
		wantErr(t, d.begin(t.Context(), 3), nil)
		d.Close()
		d.wantBatches(t, []int{buggy}, []int{1}, []int{2}, []int{3})
	})
}

func TestQueue_CloseWaitsForEveryLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeskWithLanes(2, 1)
		first := d.begin(t.Context(), 1)
		time.Sleep(500 * time.Millisecond)
		second := d.begin(t.Context(), 2)
		began := time.Now()
		d.Close()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("Close took %v", waited)
		}
		wantErr(t, first, nil)
		wantErr(t, second, nil)
	})
}

func TestQueue_AQueueWithTurnsHasOneLane(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New did not panic")
		}
	}()
	New(Config[int]{Turn: func(*Ticket[int]) {}, Lanes: 2})
}
