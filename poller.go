package onlyonce

import (
	"math/rand/v2"
	"time"
)

const (
	pollStep  = 2500 * time.Microsecond // the accuracy of a poll's time
	pollSteps = 128                     // more than the longest pause with its jitter
	mostPolls = 256                     // concurrent lookups of a Guard's poller
)

// A poller looks at the records for which callers wait. Its goroutine runs while any caller
// waits. It does not call the store itself: lookups may take nanoseconds or
// seconds, so as many goroutines share them as are needed to keep up. The
// lock of the waiters protects it.
type poller struct {
	running bool
	woken   chan struct{}           // has room for one value
	began   time.Time               // of the step 0
	next    int                     // the first step whose queues are not due
	steps   [pollSteps][]*waitQueue // by the step at which they are due, modulo pollSteps
	due     []*waitQueue            // to be looked at
	late    bool                    // some were due a step ago
	workers int                     // goroutines that look
}

// nudge makes the poller's goroutine look at its work.
func (p *poller) nudge() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// schedule makes the record of q be looked at after about q.every, jittered by a quarter.
// The caller holds the lock, as for the methods up to after.
func (ws *waiters) schedule(q *waitQueue) {
	p := &ws.poller
	now := time.Now()
	if !p.running {
		*p = poller{running: true, woken: make(chan struct{}, 1), began: now, steps: p.steps, workers: p.workers}
		for i := range p.steps {
			clear(p.steps[i])
			p.steps[i] = p.steps[i][:0]
		}
		go ws.poll()
	}
	wait := q.every - q.every/4 + rand.N(q.every/2+1)
	q.every = min(2*q.every, lastPoll)
	step := max(int((now.Sub(p.began)+wait+pollStep-1)/pollStep), p.next)
	first := p.after()
	p.steps[step%pollSteps] = append(p.steps[step%pollSteps], q)
	if first < 0 || step < first {
		p.nudge()
	}
}

// after returns the first step that has queues, or -1.
func (p *poller) after() int {
	for step := p.next; step < p.next+pollSteps; step++ {
		if len(p.steps[step%pollSteps]) > 0 {
			return step
		}
	}
	return -1
}

// poll makes every queue be looked at when it is due, until no caller waits.
func (ws *waiters) poll() {
	p := &ws.poller
	timer := time.NewTimer(firstPoll)
	defer timer.Stop()
	for {
		ws.mu.Lock()
		if len(ws.byID) == 0 {
			p.running, p.due = false, nil
			ws.mu.Unlock()
			return
		}
		pause := p.advance(time.Now())
		for range p.more() {
			p.workers++
			go ws.look()
		}
		woken := p.woken
		ws.mu.Unlock()
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-woken:
		}
	}
}

// advance moves the queues of the steps that have passed to those that are due, and
// returns when to call it again.
func (p *poller) advance(now time.Time) time.Duration {
	p.late = len(p.due) > 0
	for last := int(now.Sub(p.began) / pollStep); p.next <= last; p.next++ {
		queues := &p.steps[p.next%pollSteps]
		for _, q := range *queues {
			if q.waiting > 0 {
				p.due = append(p.due, q)
			}
		}
		clear(*queues)
		*queues = (*queues)[:0]
	}
	step := p.after()
	switch {
	case len(p.due) > 0:
		step = p.next
	case step < 0:
		step = p.next + pollSteps
	}
	return p.began.Add(time.Duration(step) * pollStep).Sub(now)
}

// more returns how many more goroutines must look: one if there is none, and twice as many
// if they do not keep up.
func (p *poller) more() int {
	switch {
	case len(p.due) == 0:
		return 0
	case p.workers == 0:
		return 1
	case p.late:
		return min(p.workers, mostPolls-p.workers, len(p.due))
	}
	return 0
}

// look looks at the records of queues that are due, and wakes the queues whose records may
// have changed, until none is due.
func (ws *waiters) look() {
	p := &ws.poller
	ws.mu.Lock()
	defer ws.mu.Unlock()
	defer func() { p.workers-- }()
	for len(p.due) > 0 {
		q := p.due[0]
		p.due[0], p.due = nil, p.due[1:]
		ws.mu.Unlock()
		changed := ws.mayHaveSettled(q)
		ws.mu.Lock()
		if q.waiting == 0 {
			continue
		}
		if changed {
			q.wake()
		}
		ws.schedule(q)
	}
}
