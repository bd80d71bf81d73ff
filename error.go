package onlyonce

import (
	"errors"
	"fmt"
	"time"
)

// What a caller can tell apart, with errors.Is.
var (
	ErrInFlight    = errors.New("the command is running")                               // ask again later; errors.As with InFlightError says when
	ErrMismatch    = errors.New("the key was used for a different request")             // a mistake of the caller: use a new key
	ErrLost        = errors.New("the lease was lost: another attempt may be running")   // ask again to learn what became of it
	ErrUnknown     = errors.New("nobody knows whether the command took effect")         // someone must look
	ErrFailed      = errors.New("the command failed, and its failure is kept")          // the stored failure
	ErrNotFound    = errors.New("no such record")                                       // by Lookup
	ErrCorrupt     = errors.New("the stored record can't be read")                      // counts as unknown
	ErrUnavailable = errors.New("the store can't be reached or can't do what is asked") // nothing ran; ask again later
)

// An InFlightError is ErrInFlight with the time after which asking again is
// worth it.
type InFlightError struct {
	ID         ID
	RetryAfter time.Duration // what is left of the running attempt's lease
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("onlyonce: %v; ask again within %v", ErrInFlight, e.RetryAfter)
}

// Is makes an InFlightError match ErrInFlight.
func (e *InFlightError) Is(target error) bool { return target == ErrInFlight }

// Final marks err as a failure that is kept and replayed whatever
// Config.KeepFailures says: asking again would fail again. Final(nil) is nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, state: StateFailed, final: true}
}

// Unknown marks err as one after which nobody knows whether the command took
// effect: a payment whose answer was lost. Unknown(nil) is nil.
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
