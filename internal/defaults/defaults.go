// Package defaults has the defaults and limits that several packages share, and applies
// the defaults of settings.
package defaults

import (
	"fmt"
	"time"
)

const (
	// PurgeEvery is how often a program purges its store.
	PurgeEvery = 10 * time.Minute

	// ShortestLease leaves room for three renewals over a slow network.
	ShortestLease = 10 * time.Millisecond

	// CountWithin is how long a store or a queue may take to count its records or messages for metrics.
	CountWithin = 2 * time.Second

	// LongestIDPart is how many bytes each part of an onlyonce.ID may have. Every store can
	// store that much.
	LongestIDPart = 1024

	// LongestErrorText is how many bytes of an error's text a record or a message keeps.
	LongestErrorText = 2 << 10

	// ShortestSecret is how many bytes a secret that keys fingerprints must have.
	ShortestSecret = 16

	// ReadOnBytes and ReadOnTime limit how much is read of a request after it was rejected,
	// and for how long. Without that, its client could lose the response.
	ReadOnBytes = 16 << 20
	ReadOnTime  = 5 * time.Second
)

// RememberTooShort reports whether a Remember is shorter than the Keep, so that the ID of a command would
// be forgotten before its result. A Remember of 0 is the Keep, and a negative time has no end.
func RememberTooShort(remember, keep time.Duration) bool {
	return remember > 0 && (keep < 0 || remember < keep)
}

// Positive returns the value that was given for a setting, or the default if that is 0. It
// panics on a negative value. The name has the package's, such as
// "onlyonce: Config.Lease".
func Positive[N int | int64 | time.Duration](name string, v, def N) N {
	switch {
	case v < 0:
		panic(fmt.Sprintf("%s is negative (%v): write a positive value, or leave it 0 for the default, %v", name, v, def))
	case v == 0:
		return def
	}
	return v
}

// Backoff returns for how long a consumer of messages first waits before it handles one again, and for
// how long at most, as they were set in the Config of the package or by default: 100ms and 30s. It panics
// on a negative value.
func Backoff(pkg string, first, longest time.Duration) (time.Duration, time.Duration) {
	first = Positive(pkg+": Config.Backoff", first, 100*time.Millisecond)
	return first, max(first, Positive(pkg+": Config.MaxBackoff", longest, 30*time.Second))
}
