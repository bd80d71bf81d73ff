package outbox

import (
	"context"
	"time"
)

// A Relay publishes the messages of a queue. Its Run may be called once.
type Relay struct {
	queue     Queue
	publisher Publisher
	cfg       Config

	limit   int           // largest number of messages of the next batch
	settled int           // largest number of verdicts of the next call of Queue.Settle
	soon    time.Duration // pause before the queue is read again after activity; 0: Config.Poll
	paused  time.Duration // the last pause after trouble; 0: none
	routeAt time.Time     // when it last published a message, or could not: the queue was empty, or the queue or the broker away
	away    awayTopics
	lagAt   time.Time // when the lag may be read again
	purgeAt time.Time // when kept messages were last purged

	elsewhereAt time.Time // when messages of other topics than those that are away may be leased
}

// NewRelay returns a relay. It panics on a nil queue or publisher and on an
// invalid Config.
func NewRelay(queue Queue, publisher Publisher, cfg Config) *Relay {
	if queue == nil || publisher == nil {
		panic("outbox: NewRelay without a queue or a publisher: pass store.Outbox() and a Publisher for your broker")
	}
	r := &Relay{queue: queue, publisher: publisher, cfg: cfg.withDefaults(), away: make(awayTopics)}
	r.limit, r.settled = min(r.cfg.Batch, firstBatch), r.cfg.Batch
	return r
}

// Run publishes until ctx ends. An error of the queue or the broker does not
// end it: the Observer gets an event, and the relay retries. When ctx ends, the
// messages that are being published are finished within Config.Grace, and the
// others are returned to the queue.
func (r *Relay) Run(ctx context.Context) {
	r.routeAt = time.Now()
	for ctx.Err() == nil {
		r.keepHouse(ctx)
		found, ok := r.publishBatch(ctx)
		switch {
		case !ok && r.publishElsewhere(ctx):
			r.soon, r.paused = soonest, 0
		case !ok:
			r.pause(ctx)
		case found:
			r.soon, r.paused = soonest, 0
		default:
			r.paused = 0
			r.wait(ctx)
		}
	}
}

// soonest is the first pause after the relay was woken. A transaction that appends is
// committed a little later, so the relay reads the queue again soon, and then at
// increasing intervals.
const soonest = time.Millisecond

// wait returns when it is time to read the queue again.
func (r *Relay) wait(ctx context.Context) {
	d := jitter(r.cfg.Poll)
	if r.soon > 0 && r.soon < d {
		d = r.soon
		r.soon *= 2
	} else {
		r.soon = 0
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	w, ok := r.queue.(Waker)
	if !ok {
		<-ctx.Done()
		return
	}
	if w.Wait(ctx) == nil {
		r.soon = soonest
		return
	}
	<-ctx.Done()
}

// longestPause is the longest pause before an unreachable broker or queue is tried
// again.
const longestPause = 5 * time.Second

// pause waits before an unreachable broker or queue is tried again.
func (r *Relay) pause(ctx context.Context) {
	r.paused = min(max(r.cfg.Backoff, 2*r.paused), longestPause)
	t := time.NewTimer(jitter(r.paused))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// publishBatch leases a batch and publishes it. It returns whether there was one,
// and whether the queue and the broker could be reached.
func (r *Relay) publishBatch(ctx context.Context) (found, ok bool) {
	b := r.newBatch()
	entries, err := b.lease(ctx, nil)
	if len(entries) == 0 || err != nil {
		r.routeAt = time.Now()
	}
	if err != nil {
		r.observe(ctx, Event{Outcome: OutcomeTrouble, Err: err})
		return false, false
	}
	if len(entries) == 0 {
		return false, true
	}
	return true, b.publishInTime(ctx, entries)
}

// publishElsewhere publishes a batch of other topics than those of which the broker has taken
// nothing: if only these are away, the messages of theirs must not hold up the others. It returns
// whether the broker took some. The queue may have to search long for them: this takes it at most
// a tenth of the time.
func (r *Relay) publishElsewhere(ctx context.Context) bool {
	began := time.Now()
	if !r.away.inDoubt() || began.Before(r.elsewhereAt) || ctx.Err() != nil {
		return false
	}
	b := r.newBatch()
	entries, err := b.lease(ctx, nil, r.away.topics()...)
	r.elsewhereAt = time.Now().Add(9 * time.Since(began))
	r.observeError(ctx, err)
	if len(entries) == 0 || err != nil {
		return false
	}
	return b.publishInTime(ctx, entries)
}

// publishInTime publishes entries under a lease that is renewed. It returns whether the broker and
// the queue could be reached.
func (b *batch) publishInTime(ctx context.Context, entries []Entry) (ok bool) {
	if err := b.extend(ctx); err != nil {
		b.relay.observe(ctx, Event{Outcome: OutcomeTrouble, Err: err})
		b.giveBack(entries)
		b.settle(ctx)
		return false
	}
	run, stop := b.context(ctx)
	defer stop()
	return b.publish(ctx, run, entries)
}
