package bench

import (
	"context"
	"fmt"
	"io"
	"time"
)

// A target is a system that is put under load.
type target interface {
	fmt.Stringer
	// send sends the command of a key once.
	send(ctx context.Context, k *trackedKey) (outcome, error)
	// keeps returns for how long a response is repeated at least.
	keeps() time.Duration
	// finish makes the checks that are possible only at the end.
	finish(keys *keySet)
	// clean removes the records that were written, as soon as it can after the run ended,
	// and writes to log which ones are left. With leave, it removes nothing.
	clean(ctx context.Context, log io.Writer, ended time.Time, leave bool) error
	close() error
}

// pauseUntil waits until the time at, and reports whether it came before ctx ended.
func pauseUntil(ctx context.Context, at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
