package transact

import (
	"context"
	"math/rand/v2"
	"time"
)

// MaxRuns is how often a function runs because the database, or another attempt,
// undid its transaction.
const MaxRuns = 20

// longestPause is the longest pause between two runs.
const longestPause = 2 * time.Second

// AfterRun returns the longest pause before the run that follows n others, of which the
// last took so long. The transaction that undid it is mostly one like it, and takes as
// long.
func AfterRun(n int, took time.Duration) time.Duration {
	return min(max(took, time.Millisecond)<<min(n, MaxRuns), longestPause)
}

// Pause waits for a random time. It reports false if ctx ends first.
func Pause(ctx context.Context, atMost time.Duration) bool {
	t := time.NewTimer(rand.N(atMost))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
