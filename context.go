package onlyonce

import (
	"context"
	"time"
)

// Context returns the context for the function that the attempt runs. It
// carries ctx's values and the attempt, but not ctx's cancellation. The
// returned function ends it.
//
// All contexts of an attempt depend on its one lease. While any of them is in
// use, the lease is renewed after each third of its length. When the lease is
// lost, or is not renewed before its last quarter begins, all of them end with
// the cause ErrLost. A context that is created afterwards has ended with that
// cause, too. Settle also ends all of them. SettleTx ends the renewals but no
// context, because it is called from a function that runs in one.
func (a *Attempt) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	a.need("Context")
	need("Context", ctx != nil, needContext)
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	run := &a.run
	if run.Context != nil { // in use by an earlier call
		run = new(running)
	}
	run.values, run.attempt = detached{Context: ctx}, a
	run.Context, run.cancel = context.WithCancelCause(&run.values)
	now := time.Now()
	switch {
	case !a.held:
		return run, a.bound(run)
	case l.phase == phaseSettled:
		run.cancel(nil)
	case l.lost || !now.Before(l.deadline()):
		l.endForGood()
		run.cancel(ErrLost)
	default:
		if l.contexts == nil {
			l.contexts = l.contextsBuf[:0]
		}
		l.contexts = append(l.contexts, run)
		if l.timer == nil {
			l.fires = l.next()
			l.timer = time.AfterFunc(l.fires.Sub(now), a.wake)
		} else {
			l.set(now)
		}
	}
	return run, func() { l.stop(run) }
}

// bound ends a context of an attempt without a lease with the transaction that
// the attempt runs in, if it does.
func (a *Attempt) bound(run *running) context.CancelFunc {
	a.mu.Lock()
	tx := a.tx
	a.mu.Unlock()
	if tx == nil {
		return func() { run.cancel(nil) }
	}
	unbind := context.AfterFunc(tx, func() { run.cancel(context.Cause(tx)) })
	return func() { unbind(); run.cancel(nil) }
}

// running is a context of an attempt.
type running struct {
	context.Context
	values  detached
	attempt *Attempt
	cancel  context.CancelCauseFunc
	stopped bool // while it served a settlement
}

// detached is context.WithoutCancel without an allocation of its own.
type detached struct{ context.Context }

func (*detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*detached) Done() <-chan struct{}       { return nil }
func (*detached) Err() error                  { return nil }

func (r *running) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return r.attempt
	case runningKey:
		return r
	}
	return r.Context.Value(key)
}

// runningKey is that of the attempt's own context in one derived from it.
type runningKey struct{}
