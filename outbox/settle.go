package outbox

import (
	"context"
	"errors"
	"time"
)

// settle records the verdicts, and retries until the lease would end. A message whose
// verdict cannot be recorded is published again.
func (b *batch) settle(ctx context.Context) (ok bool) {
	if len(b.verdicts) == 0 {
		return true
	}
	rest, r := b.verdicts, b.relay
	b.verdicts, b.settledAt = nil, time.Now()
	for pause := 10 * time.Millisecond; len(rest) > 0; {
		part := rest[:min(r.settled, len(rest))]
		err := b.record(ctx, part)
		switch {
		case err == nil:
			rest = rest[len(part):]
			b.recorded(part)
			if n := published(part); n > 0 {
				r.observe(ctx, Event{Outcome: OutcomePublished, Count: n, Duration: time.Since(b.began)})
			}
		case errors.Is(err, ErrLost):
			rest = rest[len(part):]
			b.recorded(part)
			b.end(ErrLost) // messages that were leased later must not hide it from renew
			r.observe(ctx, Event{Outcome: OutcomeLost, Count: len(part), Err: err})
		default:
			r.observe(ctx, Event{Outcome: OutcomeTrouble, Count: len(part), Err: err})
			if ctx.Err() != nil || b.left() <= pause {
				return false
			}
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
		}
	}
	return true
}

// record records verdicts in one call of the queue. It limits how many are recorded in the next
// call so that it fits into Config.Timeout: each may take the queue a round trip of its own, and a
// call that takes too long would take too long every time.
func (b *batch) record(ctx context.Context, verdicts []Verdict) error {
	r := b.relay
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Timeout)
	defer cancel()
	began := time.Now()
	err := r.queue.Settle(ctx, b.owner, verdicts)
	switch {
	case err != nil && !errors.Is(err, ErrLost):
		r.settled = max(len(verdicts)/2, 1)
	case time.Since(began) < r.cfg.Timeout/4:
		r.settled = min(2*r.settled, r.cfg.Batch)
	}
	return err
}

// published counts the verdicts on published messages.
func published(verdicts []Verdict) (n int) {
	for _, v := range verdicts {
		if v.State == StatePublished {
			n++
		}
	}
	return n
}
