package onlyonce

import (
	"context"
	"sync"
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
	if run.attempt != nil { // in use by an earlier call
		run = new(running)
	}
	run.values, run.attempt = detached{Context: ctx}, a
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

// running is a context of an attempt. The context of package context that ends with it is
// made when it is first needed: most functions that return soon neither wait for the end of
// their context nor derive another one from it.
type running struct {
	values  detached
	attempt *Attempt
	stopped bool // while it served a settlement

	ended       bool            // guarded, like the rest, by mu
	mu          sync.Mutex      // may be locked while the lease's is held, not the other way round
	cause       error           // why it has ended; nil: it was stopped
	inner       context.Context // nil: it was not needed yet
	cancelInner context.CancelCauseFunc
}

func (r *running) Deadline() (time.Time, bool) { return time.Time{}, false }

func (r *running) Done() <-chan struct{} { return r.made().Done() }

func (r *running) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return context.Canceled
	}
	return nil
}

// Value passes on every key that it does not know: with one of its own, package context
// looks for the context whose cause it returns and from which it derives others.
func (r *running) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return r.attempt
	case runningKey:
		return r
	}
	return r.made().Value(key)
}

// made returns the context of package context that ends with r.
func (r *running) made() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		r.inner, r.cancelInner = context.WithCancelCause(&r.values)
		if r.ended {
			r.cancelInner(r.cause)
		}
	}
	return r.inner
}

// cancel ends the context, unless it has ended.
func (r *running) cancel(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended, r.cause = true, cause
	if r.inner != nil {
		r.cancelInner(cause)
	}
}

// detached is context.WithoutCancel without an allocation of its own.
type detached struct{ context.Context }

func (*detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*detached) Done() <-chan struct{}       { return nil }
func (*detached) Err() error                  { return nil }

// runningKey is that of the attempt's own context in one derived from it.
type runningKey struct{}

// txContext is the context of a function that runs in a transaction of the attempt.
type txContext struct {
	context.Context
	attempt *Attempt
}

func (c *txContext) Value(key any) any {
	switch key.(type) {
	case attemptKey:
		return c.attempt
	case runningKey:
		return nil // the transaction ends it, not the lease
	}
	return c.Context.Value(key)
}
