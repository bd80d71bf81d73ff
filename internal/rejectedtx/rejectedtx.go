// Package rejectedtx marks the error of a transaction that a database rejects because of what the
// transaction did, and would reject again. An error without the mark may be one of a database that
// is away.
package rejectedtx

import "errors"

// An Error is the error of a transaction that was rejected, and rolled back.
type Error struct{ Cause error }

func (e *Error) Error() string { return e.Cause.Error() }

func (e *Error) Unwrap() error { return e.Cause }

// In returns the Error that err is or wraps, or nil.
func In(err error) *Error {
	var rejected *Error
	errors.As(err, &rejected)
	return rejected
}
