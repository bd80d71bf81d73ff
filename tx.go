package onlyonce

import (
	"context"
	"errors"
)

// BeginTx is Guard.Begin for a command that runs in a transaction of the
// store's own database: fn's rows and its settlement are committed together. It
// returns the attempt once that is done, or once there is a result to replay
// (see Attempt.Replayed). When fn returns an error, that is returned as it is, its
// rows are rolled back, and its settlement is recorded alone (see Failure); a
// zero settlement releases the command. Most callers want DoTx or a way in built
// on it.
func BeginTx[TX any](ctx context.Context, g *Guard, in Transactor[TX], req Request, fn func(context.Context, TX) (Settlement, error)) (*Attempt, error) {
	needTx("BeginTx", g, in, fn != nil)
	run := &txRun[TX]{guard: g, in: in, fn: fn}
	a, err := g.enter(ctx, req, func(ctx context.Context, c Claim) (Record, error) {
		return run.claim(ctx, c, req)
	})
	if err != nil || a.replayed {
		return a, err
	}
	if a.held { // taken before, for Config.Reconcile
		return a, run.settle(ctx, a)
	}
	g.observe(ctx, a, outcomeOf(a.rec.State, nil), nil)
	return a, nil
}

// A txRun is one caller's function on its way through a transaction.
type txRun[TX any] struct {
	guard *Guard
	in    Transactor[TX]
	fn    func(context.Context, TX) (Settlement, error)
}

// An fnError is the error of a caller's function, which passes unchanged.
type fnError struct{ err error }

func (e *fnError) Error() string { return e.err.Error() }

// claim runs the function if the command is given. It does not end because its
// caller goes away, but because it takes too long: first to get its turn, then
// to run.
func (t *txRun[TX]) claim(ctx context.Context, c Claim, req Request) (Record, error) {
	if ctx.Err() != nil {
		return Record{}, context.Cause(ctx)
	}
	inner := newAttempt(t.guard, req)
	inner.inTx = true
	ended, ran := false, false
	var failed error
	defer func() {
		if ran {
			t.guard.rooms.wake(req.ID)
		}
		if ran && !ended {
			t.guard.observe(ctx, inner, OutcomeFailed, errors.New("onlyonce: panic in a transaction, which was rolled back"))
		}
	}()
	turn, stop := context.WithTimeout(context.WithoutCancel(ctx), c.Lease)
	defer stop()
	rec, err := t.in.RunTx(turn, c, func(ctx context.Context, tx TX, r Record) (Settlement, error) {
		inner.rec, ran, ended = r, true, false
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Lease)
		defer cancel()
		s, err := t.fn(&running{Context: ctx, attempt: inner}, tx)
		s = inner.complete(s)
		inner.rec.State, inner.rec.Error = s.State, s.Error
		ended, failed = true, err
		return s, err
	})
	ended = true
	if failed != nil {
		t.guard.observe(ctx, inner, outcomeOf(inner.rec.State, nil), failed)
		return rec, &fnError{failed}
	}
	if ran && rec.Owner == c.Owner {
		rec.State = inner.rec.State // which says so when the command was released
	}
	return rec, err
}

// settle runs the function for an attempt that holds the command already.
func (t *txRun[TX]) settle(ctx context.Context, a *Attempt) error {
	leased, stop := a.Context(ctx)
	defer stop()
	defer a.settleUnfinished(leased)
	err := SettleTx(leased, a, t.in, t.fn)
	if err != nil && !a.lease.ended() {
		_ = a.Settle(leased, Settlement{}) // observed
	}
	return err
}

// settleDoubt finds out whether the transaction that was to settle the attempt as
// s was committed although the store returned an error. If not, the command has
// failed, and nobody waits for its lease.
func (a *Attempt) settleDoubt(ctx context.Context, s Settlement, cause error) error {
	a.lease.settling()
	failed := a.complete(Settlement{State: StateFailed, Error: cause.Error()})
	err := a.settle(ctx, failed) // which changes nothing if it was committed
	if err == nil && a.committed(ctx, s) {
		failed, cause = s, nil
	}
	a.guard.rooms.wake(a.req.ID)
	a.settled(ctx, failed, err)
	return settleError(cause)
}

// committed looks whether the record is as s left it.
func (a *Attempt) committed(ctx context.Context, s Settlement) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.guard.cfg.Lease/4)
	defer cancel()
	rec, err := a.guard.store.Lookup(ctx, a.req.ID)
	return err == nil && rec.Owner == a.Record().Owner && rec.State == s.State && rec.Error == s.Error
}

// SettleTx ends an attempt that holds the command in a transaction of the
// store's own database: fn's rows and its settlement are committed together, and
// only if the command is still the attempt's; otherwise the error is ErrLost and
// nothing is left of fn's rows. When fn returns an error, its rows are rolled
// back and the error is returned as it is; its settlement is recorded alone,
// unless it is zero: then the attempt goes on. A commit of which the store can't
// say whether it came through is looked for: if it did not, the command failed.
func SettleTx[TX any](ctx context.Context, a *Attempt, in Transactor[TX], fn func(context.Context, TX) (Settlement, error)) error {
	need("SettleTx", a != nil, needAttempt)
	need("SettleTx", in != nil, needTransactor)
	need("SettleTx", fn != nil, needFunction)
	var s Settlement
	var failed error
	ran := false
	err := in.SettleTx(ctx, a.hold(), func(ctx context.Context, tx TX) (Settlement, error) {
		ran = true
		s, failed = fn(&running{Context: ctx, attempt: a}, tx)
		if failed == nil || s.State != "" {
			s = a.complete(s)
		}
		return s, failed
	})
	switch {
	case failed != nil && s.State == "":
		return failed
	case !ran && !errors.Is(err, ErrLost):
		return settleError(err)
	case failed != nil:
		err = nil
	case err != nil && !errors.Is(err, ErrLost):
		return a.settleDoubt(ctx, s, err)
	}
	a.lease.settling()
	a.guard.rooms.wake(a.req.ID)
	a.settled(ctx, s, err)
	if failed != nil {
		return failed
	}
	return settleError(err)
}
