package onlyonce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// An Answer is the result of a command, either of this run or replayed from an
// earlier one.
type Answer[T any] struct {
	Value    T
	Status   int    // the HTTP status that the attempt set, or 0: see Attempt.SetStatus
	Ref      string // identifies the object that the command created: see Attempt.SetRef
	Replayed bool
	Attempt  int // the attempt that produced the result; the first is 1
}

// Do runs fn once for req, and every later caller gets the response of that run.
// The value is stored as JSON, so a repeat does not get parts of it that JSON
// cannot represent. A type with a MarshalJSON of its own, also on its pointer, needs an
// UnmarshalJSON that reads what it writes, or a repeat gets ErrCorrupt. As always in
// encoding/json, the values of a map are encoded without the methods that their type has only
// on its pointer. A repeat finds the numbers in an interface, such as a map[string]any, as
// float64 or, if that would change one of them or the repeat's value cannot be encoded again,
// as json.Number.
//
// fn's context carries ctx's values and the attempt (see Current), but not
// ctx's cancellation: a caller that disconnects does not stop the command. When
// the lease is lost, the context ends with the cause ErrLost.
//
// If fn returns an error, the command has failed, and the next caller runs it
// again. With a Final error or Config.KeepFailures, a repeat gets ErrFailed
// instead. After a panic, an Unknown error, an error returned after fn's context
// ended, or a value that can't be stored as JSON, the outcome is unknown: see
// Config.HoldUnknown and Config.Reconcile.
//
// If the value is larger than the store accepts, the caller gets it, but it is
// not stored. With Config.HoldUnknown or Config.Reconcile, the outcome is unknown.
// Otherwise the command has completed and does not run again, and a repeat gets
// ErrCorrupt. The Observer gets an event with the error.
//
// If the store can't be reached when fn returns, and stays so until the lease would end, the
// caller gets the value, and the Observer gets OutcomeUnrecorded. The outcome is then unknown to
// the store: a repeat may run fn again and get another value.
//
// Do itself returns ErrMismatch, ErrKeyExpired, InFlightError, ErrUnknown and
// ErrUnavailable as Guard.Begin does. It returns ErrLost if another attempt took over while fn
// ran. If ctx, g or fn is nil, it panics before anything is claimed.
func Do[T any](ctx context.Context, g *Guard, req Request, fn func(context.Context) (T, error)) (Answer[T], error) {
	g.need("Do", ctx)
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
		_ = a.Settle(ctx, Settlement{}) // observed
		return Answer[T]{}, fmt.Errorf("onlyonce: nothing ran: %w", context.Cause(run))
	}
	defer a.settleUnfinished(run)
	value, err := fn(run)
	s, err := settlement(run, value, err, StateUnknown)
	rejected := a.Settle(run, s)
	if errors.Is(rejected, ErrTooLarge) {
		rejected = a.settleSmaller(run, s, rejected)
	}
	if errors.Is(rejected, ErrLost) || errors.Is(rejected, ErrInFlight) {
		return Answer[T]{}, errors.Join(rejected, err)
	}
	if err != nil {
		return Answer[T]{}, err
	}
	return answer(a, value), nil
}

// DoTx is Do for a command whose rows are in the store's own database: fn's
// rows and the response are committed together, or neither is.
//
// When fn returns an error or panics, its rows are rolled back, so the outcome
// is known. After an error, the command has failed; after a panic, nothing is
// recorded. No lease is held. The wait for a turn is limited to one lease, and
// so is the time that fn may run: its context ends then. If the database
// requires a retry, fn runs again in a new transaction.
//
// fn must not commit or roll back the transaction, nor execute a statement by which MySQL
// commits implicitly, such as CREATE TABLE. If it does, and then returns no error, the error
// is ErrUnknown, but nothing is recorded: a repeat runs fn again, even with
// Config.HoldUnknown. If it does, and then returns an error or panics, nothing notices it,
// and the command counts as failed although rows are committed.
//
// fn must not use the transaction after returning, because it may then belong to another
// caller. In a database with a single writer, such as SQLite, a function that ignores its
// context makes all others wait. A function that calls Do or DoTx must pass on its own
// context rather than its caller's. It then gets an error instead of waiting for itself.
func DoTx[T, TX any](ctx context.Context, g *TxGuard[TX], req Request, fn func(context.Context, TX) (T, error)) (Answer[T], error) {
	g.need("DoTx", ctx)
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

// settlement returns the settlement of an attempt whose function returned value
// and err. If the value can't be stored, its state is unstorable.
func settlement[T any](ctx context.Context, value T, err error, unstorable State) (Settlement, error) {
	if err != nil {
		return failure(ctx, err), err
	}
	body, err := toJSON(&value)
	if err != nil {
		err = fmt.Errorf("onlyonce: store the value: %w", err)
		if unstorable == StateUnknown {
			err = Unknown(err)
		}
		return Settlement{State: unstorable, Error: err.Error()}, err
	}
	return Settlement{State: StateCompleted, Result: Result{Body: body}}, nil
}

// failure returns the settlement of an attempt whose function returned err
// under ctx.
func failure(ctx context.Context, err error) Settlement {
	v := markOf(err)
	switch {
	case v != nil:
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
	if err := a.Err(); err != nil {
		var none T
		return answer(a, none), err
	}
	rec := a.Record()
	value, err := decode[T](rec.Result.Body)
	if len(rec.Result.Body) == 0 && rec.Error != "" {
		err = errors.New(rec.Error) // why there is no value
	}
	if err != nil {
		a.guard.observe(ctx, a, OutcomeCorrupt, err)
		return Answer[T]{}, fmt.Errorf("onlyonce: decode the stored value: %w: %w", ErrCorrupt, err)
	}
	return answer(a, value), nil
}

// toJSON returns a value as it is stored. Given a pointer, encoding/json also calls the methods
// that a type such as big.Int has on its pointer, as it does to decode the value.
func toJSON[T any](value *T) ([]byte, error) { return json.Marshal(value) }

// decode decodes a stored value. In an interface, encoding/json decodes a number as a
// float64, which rounds large integers. If that changes what the value is encoded as, the
// numbers in its interfaces are json.Numbers instead, which keep every digit.
func decode[T any](stored []byte) (T, error) {
	var value, exact T
	rounded := json.Unmarshal(stored, &value)
	if !mayHoldInterface(reflect.TypeFor[T]()) {
		return value, rounded
	}
	encoded, err := encode(value)
	if rounded == nil && err == nil && bytes.Equal(encoded, stored) {
		return value, nil
	}
	d := json.NewDecoder(bytes.NewReader(stored))
	d.UseNumber()
	if !json.Valid(stored) || d.Decode(&exact) != nil { // a Decoder accepts more text after the value
		return value, rounded
	}
	if again, err := encode(exact); rounded == nil && err == nil && bytes.Equal(again, encoded) {
		return value, nil // the type has changed since, not a number
	}
	return exact, nil
}

// encode encodes a decoded value. A MarshalJSON may need, and panic without, a part of it that
// JSON cannot represent.
func encode[T any](value T) (encoded []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return toJSON(&value)
}

// interfaceHolders has the results of mayHoldInterface, by type.
var interfaceHolders sync.Map

// mayHoldInterface reports whether a value of type t may have a part that is in an interface.
func mayHoldInterface(t reflect.Type) bool {
	if holds, ok := interfaceHolders.Load(t); ok {
		return holds.(bool)
	}
	holds := findInterface(t, make(map[reflect.Type]bool))
	interfaceHolders.Store(t, holds)
	return holds
}

func findInterface(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Array, reflect.Map, reflect.Pointer, reflect.Slice:
		return findInterface(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if findInterface(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// settleUnfinished is deferred by code that runs a caller's function. If the
// function panicked or ended its goroutine, the outcome is unknown.
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
