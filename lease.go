package onlyonce

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A lease keeps an attempt's hold alive while a function runs under it. If it
// can't, it ends every context of the attempt in time.
//
// It has one timer. While any context is in use, the timer is set to fire no
// later than the deadline of the contexts, whatever a renewal does meanwhile:
// only a successful renewal moves the deadline. The same timer starts the
// renewals and limits the time for settling.
type lease struct {
	full time.Duration // how long the lease lasts when it is new, or renewed

	mu             sync.Mutex
	until          time.Time // when the lease ends, by the monotonic clock: counted from before the store was called
	phase          phase
	lost           bool          // contexts have ended, or would have, because the attempt might not hold the lease
	renewing       bool          // a call of the store is in progress
	failures       int32         // failed renewals since the last successful one
	retry          time.Duration // after a failed renewal: the earliest time of the next one, since epoch; 0: at once
	settleDeadline time.Time     // when settling is given up

	contexts    []*running // those that live
	contextsBuf [1]*running
	timer       *time.Timer // nil until Attempt.Context
	fires       time.Time   // when the timer fires; zero: it is not set
}

// A phase of a lease.
type phase uint8

const (
	phaseRunning    phase = iota
	phaseInTx             // SettleTx runs a function; the lease is renewed, and Settle may come first
	phaseCommitting       // the function's transaction is being committed; the lease is renewed
	phaseSettling
	phaseSettled
)

// renewBound is the least time that a renewal may take.
const renewBound = 5 * time.Millisecond

// deadline returns when the contexts end unless the lease is renewed first. The
// caller must hold the lock, as for all methods up to unset.
func (l *lease) deadline() time.Time { return l.until.Add(-l.full / 4) }

// due returns when the lease is to be renewed.
func (l *lease) due() time.Time {
	due := l.until.Add(l.full/3 - l.full)
	if retry := epoch.Add(l.retry); l.retry != 0 && retry.After(due) {
		return retry
	}
	return due
}

// next returns when the live contexts next need work; zero: never.
func (l *lease) next() time.Time {
	switch {
	case len(l.contexts) == 0, l.phase == phaseSettled:
		return time.Time{}
	case l.phase == phaseSettling:
		return l.settleDeadline
	}
	at := l.deadline()
	if l.renewing {
		return at
	}
	if due := l.due(); due.Before(at) {
		return due
	}
	return at
}

// set makes sure that the timer fires no later than at next. A timer that fires
// earlier is set again then.
func (l *lease) set(now time.Time) {
	next := l.next()
	if l.timer == nil || next.IsZero() || !l.fires.IsZero() && !l.fires.After(next) {
		return
	}
	l.fires = next
	l.timer.Reset(next.Sub(now))
}

// end ends all contexts.
func (l *lease) end(cause error) {
	for _, run := range l.contexts {
		run.cancel(cause)
	}
	clear(l.contexts)
	l.contexts = l.contexts[:0]
	l.unset()
}

func (l *lease) unset() {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.fires = time.Time{}
}

// endForGood ends all contexts for good.
func (l *lease) endForGood() {
	l.lost = true
	l.end(ErrLost)
}

// stop ends one context, unless a settlement may still be using it: then it ends with
// the settlement.
func (l *lease) stop(run *running) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if run.stopped = true; l.phase == phaseSettling {
		return
	}
	run.cancel(nil)
	if i := slices.Index(l.contexts, run); i >= 0 {
		l.contexts = slices.Delete(l.contexts, i, i+1)
	}
	if len(l.contexts) == 0 {
		l.unset()
	}
}

// wake does the work that is due. It sets the timer for the next work before it
// calls the store.
func (a *Attempt) wake() {
	l := &a.lease
	l.mu.Lock()
	now := time.Now()
	l.fires = time.Time{}
	due := l.next()
	switch {
	case due.IsZero() || now.Before(due):
	case l.phase == phaseSettling:
		l.end(context.DeadlineExceeded)
	case !now.Before(l.deadline()):
		l.endForGood()
	default: // next is due for no other reason
		l.renewing = true
		l.set(now)
		values, limit := &l.contexts[0].values, l.deadline().Sub(now)/2
		l.mu.Unlock()
		a.renewInTime(values, limit)
		return
	}
	l.set(now)
	l.mu.Unlock()
}

// renewInTime renews the lease. Each try is limited, so a hanging connection
// leaves time for another one. After a failure, it is retried at growing
// intervals.
func (a *Attempt) renewInTime(values context.Context, limit time.Duration) {
	err := a.renewWithin(values, limit, nil)
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = false
	now := time.Now()
	switch {
	case err == nil:
		l.failures, l.retry = 0, 0
	case errors.Is(err, ErrLost) && l.phase < phaseCommitting: // otherwise, the commit may have settled the record
		l.endForGood()
	default:
		pause := l.full / 24 << min(l.failures, 1)
		l.failures++
		l.retry = now.Add(pause - pause/8 + rand.N(pause/4+1)).Sub(epoch)
	}
	l.set(now)
}

// renewWithin makes the lease end one full lease from now and adds steps to
// those of the record. It gives up when the limit is reached. In a transaction of the
// caller's, it does not call the store unless there are steps.
func (a *Attempt) renewWithin(ctx context.Context, limit time.Duration, steps map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, max(limit, renewBound))
	defer cancel()
	l, sent := &a.lease, time.Now()
	if !a.guard.inTx || len(steps) > 0 {
		if err := a.guard.store.Renew(ctx, a.hold(), l.full, steps); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := sent.Add(l.full); until.After(l.until) {
		l.until = until
	}
	return nil
}

// The reasons why an attempt cannot be settled.
var (
	errNotHeld  = errors.New("this attempt does not hold the command: it carries a stored result, or runs in a transaction that settles it")
	errSettled  = errors.New("this attempt was settled before")
	errSettling = fmt.Errorf("another call is settling this attempt: %w", ErrInFlight)
)

// beginSettling moves the lease from a phase in which the attempt can be settled to phase p. It
// returns an error if another call has settled the attempt or is settling it.
func (a *Attempt) beginSettling(p phase) error {
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !a.held:
		return errNotHeld
	case l.phase == phaseSettled:
		return errSettled
	case l.phase == phaseRunning, l.phase == phaseInTx && p == phaseSettling:
		l.phase = p
		return nil
	}
	return errSettling
}

// enter moves SettleTx from one of its phases to p. It returns false if Settle came
// first, or if the transaction of SettleTx has ended.
func (l *lease) enter(p phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != phaseInTx && l.phase != phaseCommitting {
		return false
	}
	l.phase = p
	return true
}

// resume continues an attempt whose settlement the store did not accept.
func (l *lease) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = phaseRunning
	l.contexts = slices.DeleteFunc(l.contexts, func(run *running) bool {
		if run.stopped {
			run.cancel(nil)
		}
		return run.stopped
	})
	l.unset()
	l.set(time.Now())
}

// settled ends the attempt after the call of the store, and with it the contexts that
// were stopped meanwhile, or all contexts.
func (l *lease) settled(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = phaseSettled
	l.unset()
	for _, run := range l.contexts {
		if all || run.stopped {
			run.cancel(nil)
		}
	}
}

// settleContext returns the context that bounds a settlement: until the lease
// would end, but never less than a quarter of it. The attempt's own context
// and timer serve if ctx is one of them, or derived from it.
func (a *Attempt) settleContext(ctx context.Context) (context.Context, context.CancelFunc) {
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	limit := max(l.until.Sub(now), l.full/4)
	l.phase, l.settleDeadline = phaseSettling, now.Add(limit)
	l.set(now)
	if run, _ := ctx.Value(runningKey{}).(*running); run != nil && slices.Contains(l.contexts, run) {
		return run, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// inTx reports whether SettleTx runs a function, or commits its transaction.
func (l *lease) inTx() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == phaseInTx || l.phase == phaseCommitting
}

// ended reports whether the attempt is settled, or about to be.
func (l *lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase >= phaseSettling
}

// over returns the reason why the attempt may not continue, or nil.
func (l *lease) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.phase >= phaseSettling:
		return errSettled
	case l.lost || !time.Now().Before(l.deadline()):
		return ErrLost
	}
	return nil
}
