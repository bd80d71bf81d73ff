package onlyonce

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A lease keeps an attempt's hold alive while it runs. It has one timer: it
// renews until the attempt settles, and from then on bounds the settling.
type lease struct {
	mu      sync.Mutex
	ctx     context.Context // nil until Attempt.Context
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc
	timer   *time.Timer
	until   time.Time // when the lease ends, on our monotonic clock: counted from before the store was asked
	out     bool      // the timer has run out, and was not set again
	stopped bool
	settled bool
	giveUp  time.Time // when the settling ends; zero before it is tried
}

// Context returns the context for what the attempt runs: it carries ctx's values
// and the attempt, but not ctx's cancellation. The lease is renewed every
// third of it until the returned function is called or the attempt is
// settled. When it is lost, or was not renewed in time less a margin of a quarter,
// the context ends with the cause ErrLost.
func (a *Attempt) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	run := &a.run
	if run.Context != nil { // in use by an earlier call
		run = new(running)
	}
	run.values, run.attempt = detached{Context: ctx}, a
	inner, cancel := context.WithCancelCause(&run.values)
	run.Context = inner
	if !a.held {
		return run, func() { cancel(nil) }
	}
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		l.until = a.sent.Add(a.guard.cfg.Lease)
	}
	l.ctx, l.cancel, l.stop, l.stopped, l.out = run, cancel, a.stop, false, false
	l.timer = time.AfterFunc(time.Until(l.until)-a.guard.cfg.Lease*2/3, a.tick)
	return run, l.stop
}

// running is the context of an attempt that runs.
type running struct {
	context.Context
	values  detached
	attempt *Attempt
}

// detached is context.WithoutCancel without an allocation of its own.
type detached struct{ context.Context }

func (*detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*detached) Done() <-chan struct{}       { return nil }
func (*detached) Err() error                  { return nil }

func (r *running) Value(key any) any {
	if key == (attemptKey{}) {
		return r.attempt
	}
	return r.Context.Value(key)
}

func (a *Attempt) stop() {
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.stopped = true
	l.timer.Stop()
	l.cancel(nil)
}

// tick renews, and sees to it that the attempt's context ends in time if that
// does not come through; once the attempt settles, it ends that in time.
func (a *Attempt) tick() {
	l := &a.lease
	l.mu.Lock()
	ctx, left := l.ctx, a.left()
	l.out = true
	if l.settled {
		defer l.mu.Unlock()
		l.boundSettling()
		return
	}
	l.mu.Unlock()
	late := time.AfterFunc(left, l.lose)
	defer late.Stop()
	err := a.renew(ctx, nil)
	if errors.Is(err, ErrLost) {
		l.lose()
		return
	}
	next := a.guard.cfg.Lease / 3
	if err != nil {
		next /= 4
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if left = a.left(); !l.settled && ctx.Err() == nil {
		l.set(max(0, min(next, left)))
	}
}

// boundSettling ends the settling if its time is over, and else sees to it that
// this comes about. The caller holds the lock.
func (l *lease) boundSettling() {
	left := time.Until(l.giveUp)
	switch {
	case l.giveUp.IsZero() || l.stopped:
	case left <= 0:
		l.cancel(context.DeadlineExceeded)
	default:
		l.set(left)
	}
}

func (l *lease) set(d time.Duration) {
	l.timer.Reset(d)
	l.out = false
}

// lose ends the attempt's context, unless only the settling is left to do.
func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		l.cancel(ErrLost)
	}
}

// left is how long the attempt may still run without another renewal. The
// caller holds the lease's lock.
func (a *Attempt) left() time.Duration {
	return time.Until(a.lease.until) - a.guard.cfg.Lease/4
}

// renew makes the lease end a full lease from now, and adds steps to the
// record's.
func (a *Attempt) renew(ctx context.Context, steps map[string][]byte) error {
	sent, full := time.Now(), a.guard.cfg.Lease
	if err := a.guard.store.Renew(ctx, a.hold(), full, steps); err != nil {
		return err
	}
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := sent.Add(full); until.After(l.until) {
		l.until = until
	}
	return nil
}

// settling ends the renewals; false: the attempt was settled before.
func (l *lease) settling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled {
		return false
	}
	l.settled = true
	return true
}

// settleContext returns the context that bounds a settlement: until the lease
// would end, but never less than a quarter of it. The attempt's own context
// and timer serve if they still can.
func (a *Attempt) settleContext(ctx context.Context) (context.Context, context.CancelFunc) {
	l := &a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.until
	if until.IsZero() {
		until = a.sent.Add(a.guard.cfg.Lease)
	}
	now := time.Now()
	limit := max(until.Sub(now), a.guard.cfg.Lease/4)
	if l.ctx == nil || l.ctx.Err() != nil {
		return context.WithTimeout(context.WithoutCancel(ctx), limit)
	}
	l.giveUp = now.Add(limit)
	if l.out { // otherwise it runs out in time to be set
		l.set(limit)
	}
	return l.ctx, l.stop
}

func (l *lease) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled
}
