// Package optimistic changes records on a database server, where each statement commits
// by itself: it looks at a row, and writes the row as it was seen or not at all. If
// another call came first, it looks again.
package optimistic

import (
	"errors"

	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// ErrContended is the error of a call that tried as often as it may.
var ErrContended = errors.New("other calls on the command came first every time")

// Rows are the rows of a store.
type Rows interface {
	// Retry waits a little before the nth retry of a call. The error is the context's, or
	// ErrContended if the call may not try again.
	Retry(n int) error

	// Find returns the row, which may have expired, or nil.
	Find(k *record.Key) (*record.Stored, error)
}
