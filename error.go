package onlyonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// These are the errors that a caller can distinguish with errors.Is.
var (
	ErrInFlight    = errors.New("the command is running")                                // retry later; errors.As with InFlightError says when
	ErrMismatch    = errors.New("the key was used for a different request")              // the caller's mistake: use a new key
	ErrKeyExpired  = errors.New("the key was used, and its result is not kept any more") // too late a retry: the command ended; look up what it did, and use a new key only for a new command
	ErrLost        = errors.New("the lease was lost: another attempt may be running")    // retry to learn the outcome
	ErrUnknown     = errors.New("it is unknown whether the command took effect")         // a person must find out
	ErrFailed      = errors.New("the command failed, and its failure is kept")           // its text has the stored failure
	ErrNotFound    = errors.New("no such record")                                        // returned by Lookup and Resolve
	ErrCorrupt     = errors.New("the stored record can't be read")                       // the outcome counts as unknown
	ErrUnavailable = errors.New("the store can't be reached or can't execute the call")  // nothing ran; retry later
	ErrTooLarge    = errors.New("the result is larger than the store accepts")           // returned by Settle, which changed nothing
)

// ErrInDoubt is an ErrUnknown. It means that the commit of a transaction of DoTx,
// SettleTx or Transact got no response, and that the store could not find out whether
// it took effect. The rows and the result are stored together or not at all. To find
// out which, and to run the command if they are not, send the request again.
var ErrInDoubt = fmt.Errorf("%w: the commit got no response", ErrUnknown)

// An InFlightError is an ErrInFlight that says when a retry is worthwhile.
type InFlightError struct {
	ID         ID
	RetryAfter time.Duration // the rest of the running attempt's lease; one second for a command that runs in a transaction
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("onlyonce: %v; retry after %v", ErrInFlight, e.RetryAfter)
}

// Is makes an InFlightError match ErrInFlight.
func (e *InFlightError) Is(target error) bool { return target == ErrInFlight }

// Final marks err as a failure that is stored and replayed whatever
// Config.KeepFailures says, because a retry would fail again. Final(nil) is
// nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, state: StateFailed, final: true}
}

// Unknown marks err as an error that leaves it unknown whether the command took
// effect, such as a payment whose response was lost. Unknown(nil) is nil. The mark
// is lost if err is formatted with %v rather than %w. An error that only wraps
// ErrUnknown has no mark: it is a failure like any other, and a repeat runs the
// command again. If several errors are joined, as by errors.Join, and err is one of them,
// the outcome is unknown, even if another one is Final.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, state: StateUnknown}
}

// A markedError is an error whose effect on the record the caller chose.
type markedError struct {
	err   error
	state State
	final bool
}

func (v *markedError) Error() string { return v.err.Error() }
func (v *markedError) Unwrap() error { return v.err }

// Failure returns the settlement of an attempt whose function returned err:
// failed, or as Final and Unknown have marked it. It panics if err is nil. It is
// meant for code that builds an integration on Begin.
func Failure(err error) Settlement {
	need("Failure", err != nil, "an error: pass the one that the function returned")
	return failure(context.Background(), err)
}

// markOf returns the outermost mark of err, or nil. Of several errors that are joined, one
// that is marked Unknown counts first. It looks where errors.As does.
func markOf(err error) (mark *markedError) {
	if v, ok := err.(*markedError); ok {
		return v
	}
	found := func(v *markedError) {
		if mark == nil || v != nil && v.state == StateUnknown {
			mark = v
		}
	}
	if e, ok := err.(interface{ As(any) bool }); ok {
		var v *markedError
		if e.As(&v) {
			found(v)
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		found(markOf(e.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, joined := range e.Unwrap() {
			found(markOf(joined))
		}
	}
	return mark
}
