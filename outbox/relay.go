package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A Config controls a Relay. The zero Config is usable.
type Config struct {
	Batch       int           // how many messages are leased and held in memory at a time, at most; default 500; fewer while they are large, see MaxLeaseBytes
	Lease       time.Duration // how long a relay holds a batch without renewal; default 30s; renewed every third of it
	Timeout     time.Duration // how long one call of the Publisher or of the Queue may take; default 10s
	Grace       time.Duration // how long a call of the Publisher in progress may continue after Run's context has ended; default 5s
	Poll        time.Duration // how often the queue is polled when nothing wakes the relay; default 200ms, up to a tenth more or less
	Backoff     time.Duration // the delay after the first failure of a message; doubled with each further one, up to a tenth more or less; longer while so many fail that the relay reaches no others; default 100ms
	MaxBackoff  time.Duration // default 1m
	MaxAttempts int           // how often a message may fail before it is parked; default 20
	Keep        time.Duration // how long a published message stays in the queue; default 0: it is deleted
	LagEvery    time.Duration // how often the lag is reported to the Observer; default 10s
	Observer    Observer      // nil: none
}

// MaxHeld bounds Config.Lease and Config.MaxBackoff. A queue may treat a message that
// would be held for longer as waiting, because the queue's clock was set back.
const MaxHeld = 24 * time.Hour

// MaxLeaseBytes bounds the payloads that Queue.Lease returns together, so that messages that are
// larger than those before fit into memory. A message with a larger payload is leased alone.
const MaxLeaseBytes = 32 << 20

// shortestLease leaves room for three renewals over a slow network.
const shortestLease = 10 * time.Millisecond

// withDefaults returns the Config with its zero fields filled in, and panics on
// nonsense.
func (c Config) withDefaults() Config {
	c.Batch = defaults.Positive("outbox: Config.Batch", c.Batch, 500)
	c.Lease = defaults.Positive("outbox: Config.Lease", c.Lease, 30*time.Second)
	c.Timeout = defaults.Positive("outbox: Config.Timeout", c.Timeout, 10*time.Second)
	c.Grace = defaults.Positive("outbox: Config.Grace", c.Grace, 5*time.Second)
	c.Poll = defaults.Positive("outbox: Config.Poll", c.Poll, 200*time.Millisecond)
	c.Backoff = defaults.Positive("outbox: Config.Backoff", c.Backoff, 100*time.Millisecond)
	c.MaxBackoff = defaults.Positive("outbox: Config.MaxBackoff", c.MaxBackoff, time.Minute)
	c.MaxAttempts = defaults.Positive("outbox: Config.MaxAttempts", c.MaxAttempts, 20)
	c.Keep = defaults.Positive("outbox: Config.Keep", c.Keep, 0)
	c.LagEvery = defaults.Positive("outbox: Config.LagEvery", c.LagEvery, 10*time.Second)
	if c.Lease < shortestLease {
		panic(fmt.Sprintf("outbox: Config.Lease is %v: write at least %v, or leave it 0 for 30s", c.Lease, shortestLease))
	}
	if c.Lease > MaxHeld || c.MaxBackoff > MaxHeld {
		panic(fmt.Sprintf("outbox: Config.Lease is %v and Config.MaxBackoff %v: write at most %v for each", c.Lease, c.MaxBackoff, MaxHeld))
	}
	return c
}

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
	lagAt   time.Time // when the lag was last reported
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

// jitter returns d changed by at most a tenth, so that relays do not act at the same
// moment.
func jitter(d time.Duration) time.Duration {
	d = min(d, math.MaxInt64/2)
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}

const (
	purgeEvery = time.Minute
	purgeBatch = 1000
)

// keepHouse reports the lag and deletes messages whose keep time has ended, each at its
// interval.
func (r *Relay) keepHouse(ctx context.Context) {
	if r.cfg.Observer != nil && time.Since(r.lagAt) >= r.cfg.LagEvery {
		r.lagAt = time.Now()
		lag, err := r.lag(ctx)
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

func (r *Relay) observe(ctx context.Context, e Event) {
	if r.cfg.Observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "outbox: the observer panicked", "event", e.logName(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	r.cfg.Observer(ctx, e)
}

// observeError reports an error of the queue, unless the end of the relay caused it.
func (r *Relay) observeError(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		r.observe(ctx, Event{Outcome: OutcomeTrouble, Err: err})
	}
}
