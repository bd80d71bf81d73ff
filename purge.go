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

// Purge deletes all expired records now, and the results of commands of which only the ID
// is still remembered (see Config.Remember), in bounded batches. It returns how many
// records and results it deleted. The stores of this module delete them by themselves, in the background
// or when a record is added, so only a program that has turned that off needs Purge.
// It never deletes a record whose lease is alive. With Config.HoldUnknown or
// Config.Reconcile, it does not delete a record whose lease has lapsed either, unless a
// Guard without them has claimed it. It needs a store that is a Purger.
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
	g.cache.forgetAll() // the store's clock decides which records have expired
	e := Event{Outcome: OutcomePurged, Purged: total, Duration: time.Since(began)}
	if ctx.Err() == nil { // a purge that its caller has ended did not fail
		e.Err = err
	}
	g.Observe(ctx, e)
	if err != nil {
		return total, fmt.Errorf("onlyonce: purge: %w", err)
	}
	return total, nil
}
