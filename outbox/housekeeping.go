package outbox

import (
	"context"
	"time"
)

const (
	purgeEvery = time.Minute
	purgeBatch = 1000
)

// keepHouse reports the lag and deletes messages whose keep time has ended, each at its
// interval. A queue counts a large backlog slowly: this takes at most a tenth of the time.
func (r *Relay) keepHouse(ctx context.Context) {
	if began := time.Now(); r.cfg.Observer != nil && !began.Before(r.lagAt) {
		lag, err := r.lag(ctx)
		r.lagAt = began.Add(max(r.cfg.LagEvery, 10*time.Since(began)))
		if err == nil {
			r.observe(ctx, Event{Outcome: OutcomeLag, Count: lag.Waiting, Lag: lag})
		} else {
			r.observeError(ctx, err)
		}
	}
	if time.Since(r.purgeAt) >= purgeEvery {
		r.purgeAt = time.Now()
		n, err := r.purge(ctx)
		if n > 0 {
			r.observe(ctx, Event{Outcome: OutcomePurged, Count: n})
		}
		r.observeError(ctx, err)
	}
}

func (r *Relay) lag(ctx context.Context) (Lag, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	return r.queue.Lag(ctx)
}

// purge deletes published messages whose keep time has ended, including those of other
// relays, even if this relay keeps none.
func (r *Relay) purge(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	for {
		deleted, err := r.queue.Purge(ctx, purgeBatch)
		if n += deleted; deleted < purgeBatch || err != nil {
			return n, err
		}
	}
}
