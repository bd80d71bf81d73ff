package sqlrow

import (
	"context"
	"math/rand/v2"
	"time"
)

// MaxRuns is how often a function runs because the database, or another attempt,
// undid its transaction.
const MaxRuns = 10

// longestPause is between two runs.
const longestPause = 2 * time.Second

// Pause waits before the run that follows on n others, of which the last took so
// long: whoever undid it is mostly another of its kind, and takes as long. It
// says false if ctx ends first.
func Pause(ctx context.Context, n int, took time.Duration) bool {
	t := time.NewTimer(rand.N(widest(n, took)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// widest is what Pause waits for at most.
func widest(n int, took time.Duration) time.Duration {
	return min(max(took, time.Millisecond)<<min(n, MaxRuns), longestPause)
}
