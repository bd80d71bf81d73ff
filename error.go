package onlyonce

import (
	"errors"
	"fmt"
	"time"
)

// These are the errors that a caller can distinguish with errors.Is.
var (
	ErrInFlight    = errors.New("the command is running")                               // retry later; errors.As with InFlightError says when
	ErrMismatch    = errors.New("the key was used for a different request")             // the caller's mistake: use a new key
	ErrLost        = errors.New("the lease was lost: another attempt may be running")   // retry to learn the outcome
	ErrUnknown     = errors.New("nobody knows whether the command took effect")         // a person must find out
	ErrFailed      = errors.New("the command failed, and its failure is kept")          // its text has the stored failure
	ErrNotFound    = errors.New("no such record")                                       // returned by Lookup
	ErrCorrupt     = errors.New("the stored record can't be read")                      // the outcome counts as unknown
	ErrUnavailable = errors.New("the store can't be reached or can't do what is asked") // nothing ran; retry later
)

// An InFlightError is an ErrInFlight that says when a retry is worthwhile.
type InFlightError struct {
	ID         ID
	RetryAfter time.Duration // the time left of the running attempt's lease
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("onlyonce: %v; ask again within %v", ErrInFlight, e.RetryAfter)
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
// effect, such as a payment whose response was lost. Unknown(nil) is nil.
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
