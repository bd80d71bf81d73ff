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

// Purge deletes expired records in bounded batches and returns how many it
// deleted. It never deletes a record whose lease is alive. With
// Config.HoldUnknown or Config.Reconcile, it does not delete a record whose
// lease has lapsed either. It needs a store that is a Purger.
func (g *Guard) Purge(ctx context.Context) (int, error) {
	g.need("Purge", ctx)
	p, ok := g.store.(Purger)
	if !ok {
		return 0, errors.New("onlyonce: purge: this store is not a Purger: it deletes expired records by itself, or not at all")
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

// PurgeEvery purges at once and then at every interval until ctx ends. The
// Observer gets an event for every purge, with its error. An error does not stop
// PurgeEvery. It panics unless the interval is positive.
func (g *Guard) PurgeEvery(ctx context.Context, interval time.Duration) {
	g.need("PurgeEvery", ctx)
	if interval <= 0 {
		panic(fmt.Sprintf("onlyonce: PurgeEvery(%v): write a positive interval, such as 10*time.Minute", interval))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		_, _ = g.Purge(ctx) // the Observer gets the error
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
