package onlyonce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// An Answer is what a command answered: now, or the first time.
type Answer[T any] struct {
	Value    T
	Status   int    // the HTTP status that the attempt gave its result, or 0: see Attempt.SetStatus
	Ref      string // what the command made: see Attempt.SetRef
	Replayed bool
	Attempt  int // the attempt that answered; the first is 1
}

// Do runs fn once for req and gives every later caller the answer of that run.
// The value is stored as JSON: what JSON does not carry, a repeat does not get.
//
// fn's context carries ctx's values and the attempt (see Current), but not
// ctx's cancellation: a caller that goes away does not stop the command. It
// ends with the cause ErrLost when the lease is lost.
//
// If fn returns an error, the command failed and the next caller runs it again,
// but for Final errors and Config.KeepFailures: then a repeat gets ErrFailed.
// After a panic, an Unknown error, or an error after its context ended, the
// outcome is unknown: see Config.HoldUnknown and Config.Reconcile.
//
// Do itself returns ErrMismatch, InFlightError, ErrUnknown and ErrUnavailable as
// Guard.Begin does, and ErrLost if fn ran while another attempt took over. It
// panics, before anything is claimed, if g or fn is nil.
func Do[T any](ctx context.Context, g *Guard, req Request, fn func(context.Context) (T, error)) (Answer[T], error) {
	need("Do", g != nil, needGuard)
	need("Do", fn != nil, needFunction)
	a, err := g.Begin(ctx, req)
	if err != nil {
		return Answer[T]{}, err
	}
	if a.replayed {
		return replay[T](ctx, a)
	}
	run, stop := a.Context(ctx)
	defer stop()
	if run.Err() != nil { // the Observer took most of the lease
		return Answer[T]{}, fmt.Errorf("onlyonce: nothing ran: %w", context.Cause(run))
	}
	defer a.settleUnfinished(run)
	value, err := fn(run)
	s, err := settlement(run, value, err, StateUnknown)
	if refused := a.Settle(run, s); errors.Is(refused, ErrLost) || errors.Is(refused, ErrInFlight) {
		return Answer[T]{}, errors.Join(refused, err)
	}
	if err != nil {
		return Answer[T]{}, err
	}
	return answer(a, value), nil
}

// DoTx is Do for a command whose rows live in the store's own database: fn's
// rows and the answer are committed together, or neither.
//
// When fn returns an error or panics, its rows are rolled back, so that the
// outcome is known: after an error the command failed, after a panic nothing is
// recorded. No lease is held: fn's context ends after one lease, and so does
// the wait for a turn. If the database asks for it, fn runs again in a new
// transaction.
//
// fn must not commit or roll back the transaction, nor use it after it has
// returned, when it may be another's. Where the database has one writer, as
// SQLite has, a function that ignores its context keeps all others waiting;
// one that calls Do or DoTx itself must pass its own context on, not its
// caller's, and then gets an error instead of waiting for itself.
func DoTx[T, TX any](ctx context.Context, g *TxGuard[TX], req Request, fn func(context.Context, TX) (T, error)) (Answer[T], error) {
	need("DoTx", g != nil, needTxGuard)
	need("DoTx", fn != nil, needFunction)
	var value T
	a, err := g.BeginTx(ctx, req, func(ctx context.Context, tx TX) (s Settlement, err error) {
		value, err = fn(ctx, tx)
		return settlement(context.Background(), value, err, StateFailed)
	})
	if err != nil {
		return Answer[T]{}, err
	}
	if a.replayed {
		return replay[T](ctx, a)
	}
	return answer(a, value), nil
}

// What a call of this package can't do without.
const (
	needGuard    = "a Guard: pass what New returns"
	needTxGuard  = "a TxGuard: pass what NewTx returns"
	needAttempt  = "an Attempt: pass what Guard.Begin returned, or Current"
	needFunction = "a function: pass the one that does the work"
)

// need panics before anything is claimed if a call lacks an argument.
func need(verb string, there bool, what string) {
	if !there {
		panic("onlyonce: " + verb + " without " + what)
	}
}

// settlement says how an attempt ended whose function returned value and err; a
// value that can't be stored leaves it in the state given.
func settlement[T any](ctx context.Context, value T, err error, unstorable State) (Settlement, error) {
	if err != nil {
		return failure(ctx, err), err
	}
	body, err := json.Marshal(value)
	if err != nil {
		err = fmt.Errorf("onlyonce: store the value: %w", err)
		return Settlement{State: unstorable, Error: err.Error()}, err
	}
	return Settlement{State: StateCompleted, Result: Result{Body: body}}, nil
}

// failure says how an attempt ended whose function returned err under ctx.
func failure(ctx context.Context, err error) Settlement {
	var v *markedError
	switch {
	case errors.As(err, &v):
		return Settlement{State: v.state, Final: v.final, Error: err.Error()}
	case ctx.Err() != nil:
		return Settlement{State: StateUnknown, Error: err.Error()}
	}
	return Settlement{State: StateFailed, Error: err.Error()}
}

func answer[T any](a *Attempt, value T) Answer[T] {
	rec := a.Record()
	return Answer[T]{Value: value, Status: rec.Result.Status, Ref: rec.Result.Ref, Replayed: a.replayed, Attempt: rec.Attempt}
}

func replay[T any](ctx context.Context, a *Attempt) (Answer[T], error) {
	var value T
	if err := a.Err(); err != nil {
		return answer(a, value), err
	}
	if err := json.Unmarshal(a.Record().Result.Body, &value); err != nil {
		a.guard.observe(ctx, a, OutcomeCorrupt, err)
		return Answer[T]{}, fmt.Errorf("onlyonce: decode the stored value: %w: %w", ErrCorrupt, err)
	}
	return answer(a, value), nil
}

// settleUnfinished is deferred by whoever runs a caller's function: if that
// panicked or ended its goroutine, nobody knows what happened.
func (a *Attempt) settleUnfinished(ctx context.Context) {
	p := recover()
	if !a.lease.ended() {
		text := "the attempt's goroutine ended"
		if p != nil {
			text = fmt.Sprint("panic: ", p)
		}
		_ = a.Settle(ctx, Settlement{State: StateUnknown, Error: text}) // observed
	}
	if p != nil {
		panic(p)
	}
}
