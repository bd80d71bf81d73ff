package resources

import (
	"errors"
	"time"
)

var (
	// ErrTooLarge is returned for a body that is longer than its limit.
	ErrTooLarge = errors.New("httponce: the request's body is too large")
	// ErrSilent is returned for a body of which too little arrived while
	// others waited for memory. It can't be read any further.
	ErrSilent = errors.New("httponce: too little of the request's body arrived while others waited for memory")
)

// The limits that a Rejection names.
const (
	LimitInFlight     = "in_flight"
	LimitNewKeys      = "new_keys"
	LimitTenantStored = "tenant_stored"
	LimitStored       = "stored"
	LimitTenantMemory = "tenant_memory"
	LimitMemory       = "memory"
)

// A Rejection is the error of a request for which a limit has been reached.
type Rejection struct {
	Limit      string        // which: one of the constants
	OfTenant   bool          // the limit is the tenant's; otherwise it is the process's
	RetryAfter time.Duration // when a retry may succeed
}

func (*Rejection) Error() string { return "httponce: there is no memory for the request's body" }
