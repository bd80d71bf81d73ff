package resources

import (
	"errors"
	"time"
)

var (
	// ErrTooLarge is returned for a body that is longer than its limit.
	ErrTooLarge = errors.New("httponce: the request's body is too large")
	// ErrSilent is returned for a body of which too little arrived while
	// others waited for memory. Nothing more can be read of it.
	ErrSilent = errors.New("httponce: the request's body did not come while there was no room for others")
)

// A Rejection says that a limit has been reached. It is the error of a body for
// which there is no memory.
type Rejection struct {
	OfTenant   bool          // the limit is the tenant's; otherwise it is the process's
	RetryAfter time.Duration // how long it takes until the limit may no longer be reached
}

func (*Rejection) Error() string { return "httponce: there is no room for the request's body" }
