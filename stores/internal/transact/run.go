package transact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Run claims, runs fn and settles in one transaction. The errors that it returns,
// except for fn's own, begin with the store's operation.
func Run[TX any](ctx context.Context, doing string, on Transactor[TX], c *onlyonce.Claim, k *record.Key, fn Func[TX]) (onlyonce.Record, error) {
	r := newRun(ctx, doing, on, fn)
	r.Key, r.Claim = *k, c
	defer r.keepFence()
	return r.result(r.retry())
}

// Settle runs fn and settles a hold in one transaction. Its errors are like those
// of Run.
func Settle[TX any](ctx context.Context, doing string, on Transactor[TX], h *onlyonce.Hold, k *record.Key, fn Func[TX]) error {
	r := newRun(ctx, doing, on, fn)
	r.Key, r.Hold = *k, h
	_, err := r.result(r.retry())
	return err
}

// A run is one call of Run or Settle.
type run[TX any] struct {
	Command
	doing string
	on    Transactor[TX]
	fn    Func[TX]

	ctx     context.Context // the caller's
	own     context.Context // the caller's without its end, which a transaction that has begun does not observe
	issued  int64           // the highest fence that fn got and no row has
	funcErr error           // the error of fn, if it does not run again
}

func newRun[TX any](ctx context.Context, doing string, on Transactor[TX], fn Func[TX]) *run[TX] {
	return &run[TX]{doing: doing, on: on, fn: fn, ctx: ctx, own: context.WithoutCancel(ctx)}
}

// result returns the caller's result. If only the store failed, that is no record.
func (r *run[TX]) result(err error) (onlyonce.Record, error) {
	if err != nil && r.funcErr == nil {
		r.Record = onlyonce.Record{}
	}
	return r.Record, Result(r.doing, r.funcErr, err)
}

var errUndone = errors.New("the database or other attempts undid the transaction every time")

// retry runs the function until its transaction is not undone by a conflict.
func (r *run[TX]) retry() error {
	for n := 1; ; n++ {
		began := time.Now()
		again, err := r.attempt(n == MaxRuns)
		switch {
		case !again:
			return err
		case n == MaxRuns:
			return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnavailable, errUndone, err)
		case !Pause(r.ctx, AfterRun(n, time.Since(began))):
			return errors.Join(r.ctx.Err(), err)
		}
	}
}

// attempt runs the function in one transaction. It returns again if nothing of that is
// left because of a conflict. Every connection of the store's pool may be in such a
// transaction, so it is closed before anything else needs one.
func (r *run[TX]) attempt(last bool) (again bool, err error) {
	tx, err := r.begin()
	if err != nil {
		return r.on.Classify(err) == Conflict, err
	}
	defer tx.Close(r.own) // also after a panic
	runs, err := r.decide()
	if err != nil {
		return false, err
	}
	if !runs {
		tx.Close(r.own)
		return r.awaitDurable()
	}
	if err := r.call(tx); err != nil {
		tx.Close(r.own)
		return r.fail(err, last)
	}
	switch outcome, err := r.commit(tx); {
	case outcome == Overtaken && r.Hold != nil:
		return false, onlyonce.ErrLost
	case outcome == Overtaken:
		return true, err
	case outcome == RolledBack:
		return r.rolledBack(err)
	default:
		return false, err
	}
}

// rolledBack returns the result of an attempt whose transaction was rolled back at its end because
// of cause. An error that is not ErrUnavailable, and that would be returned again, is marked as a
// rejection.
func (r *run[TX]) rolledBack(cause error) (again bool, err error) {
	class := r.on.Classify(cause)
	rejected := class == Permanent && !errors.Is(cause, onlyonce.ErrUnavailable) || errors.Is(cause, onlyonce.ErrTooLarge)
	if rejected {
		return false, &rejectedtx.Error{Cause: cause}
	}
	return class == Conflict, cause
}

// beginTries is how many connections of a pool are tried: those that were idle when
// the server or the network went away are found to be broken one by one.
const beginTries = 3

func (r *run[TX]) begin() (tx Tx[TX], err error) {
	for range beginTries {
		r.Token = NewToken() // the server may not have noticed yet that the lock of the one before is free
		tx, err = r.on.Begin(r.ctx, &r.Command)
		if err == nil || r.on.Classify(err) != Broken {
			break
		}
	}
	return tx, err
}

// awaitDurable returns once the record that the transaction saw may be returned, which was
// the reason not to run the function. It returns again if that record is no longer there.
func (r *run[TX]) awaitDurable() (again bool, err error) {
	if r.Seen.Row == nil {
		return false, nil
	}
	is, err := r.on.Durable(r.ctx, &r.Command)
	if err == nil && !is {
		return true, errOvertaken
	}
	return false, err
}

func (r *run[TX]) call(tx Tx[TX]) error {
	if r.Claim != nil {
		r.issued = r.Record.Fence
	}
	st, err := r.fn(r.ctx, tx.Handle(), r.Record)
	r.Settlement, err = Check(r.doing, st, err)
	return err
}

// fail records how the function failed. After a conflict that the database reported to it,
// the function runs again instead.
func (r *run[TX]) fail(err error, last bool) (again bool, _ error) {
	if !last && r.on.Classify(err) == Conflict {
		return true, err
	}
	r.funcErr = err
	switch {
	case r.Settlement.State == "":
		return false, nil
	case r.Hold != nil:
		return false, r.on.Settle(r.own, &r.Command)
	default:
		return false, r.recordAlone()
	}
}

// recordAlone records the settlement in a transaction without rows of the
// function's.
func (r *run[TX]) recordAlone() error {
	r.Seen.Mark = 0
	for n := 1; ; n++ {
		outcome, err := r.recordOnce()
		if outcome == Overtaken {
			return onlyonce.ErrLost
		}
		class := r.on.Classify(err)
		again := outcome == RolledBack && (class == Conflict && n < MaxRuns || class == Broken && n < beginTries)
		if !again || !Pause(r.own, AfterRun(n, 0)) {
			return err
		}
		r.Token = NewToken()
	}
}

// recordOnce is one try of recordAlone.
func (r *run[TX]) recordOnce() (Outcome, error) {
	tx, err := r.on.BeginAlone(r.own, &r.Command)
	if err != nil {
		return RolledBack, err
	}
	return r.commit(tx)
}

var errOvertaken = errors.New("the command's record was changed by a claim outside the transaction: nothing was written")

// commit writes the settlement, commits, and closes the transaction. If it is in doubt
// whether the transaction was committed, commit finds out: it returns InDoubt only if it could not.
func (r *run[TX]) commit(tx Tx[TX]) (Outcome, error) {
	settledAt, outcome, err := tx.Commit(r.own, &r.Command)
	tx.Close(r.own)
	switch outcome {
	case InDoubt:
		settledAt, err = r.resolve(err)
		switch {
		case errors.Is(err, ErrNotCommitted):
			return RolledBack, err
		case err != nil:
			return InDoubt, err
		}
	case Overtaken:
		return Overtaken, errOvertaken
	case Ended:
		return Ended, ended(err)
	case RolledBack:
		return RolledBack, err
	}
	r.issued = 0
	if r.Settlement.State != "" {
		r.Record = r.Record.Settled(r.Settlement, time.UnixMicro(settledAt).UTC())
	}
	return Committed, nil
}

// ended is the error of a transaction that its function had ended, and may have
// committed.
func ended(cause error) error {
	if cause == nil || errors.Is(cause, ErrEnded) {
		return unknown(onlyonce.ErrUnknown, ErrEnded)
	}
	return unknown(onlyonce.ErrUnknown, ErrEnded, cause)
}
