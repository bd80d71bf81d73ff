package onlyonce

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// purgeBatch is small enough that no caller of a store with one writer waits
// long behind it.
const purgeBatch = 500

// Purge deletes, in bounded batches, what has expired, and returns how many
// records that were. A record whose lease is alive is never deleted, and with
// Config.HoldUnknown or Config.Reconcile neither is one whose lease has lapsed. It
// needs a store that is a Purger.
func (g *Guard) Purge(ctx context.Context) (int, error) {
	p, ok := g.store.(Purger)
	if !ok {
		return 0, errors.New("onlyonce: purge: this store deletes what has expired by itself, or can't")
	}
	began, total := time.Now(), 0
	var err error
	for n := 1; n > 0 && err == nil; total += n {
		n, err = p.Purge(ctx, purgeBatch)
	}
	g.Observe(ctx, Event{Outcome: OutcomePurged, Purged: total, Duration: time.Since(began), Err: err})
	if err != nil {
		return total, fmt.Errorf("onlyonce: purge: %w", err)
	}
	return total, nil
}

// PurgeEvery purges now and then again and again until ctx ends. The Observer
// learns of every purge and its error; an error does not end it. It panics
// unless the interval is positive.
func (g *Guard) PurgeEvery(ctx context.Context, interval time.Duration) {
	if interval <= 0 {
		panic(fmt.Sprintf("onlyonce: PurgeEvery(%v): write a positive interval, such as 10*time.Minute", interval))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		_, _ = g.Purge(ctx) // observed
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
