package outbox

import (
	"fmt"
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
	LagEvery    time.Duration // how often the lag is reported to the Observer, at most; less often while the queue takes more than a tenth of that to count its messages; default 10s
	Observer    Observer      // nil: none
}

// MaxHeld bounds Config.Lease and Config.MaxBackoff. A queue may treat a message that
// would be held for longer as waiting, because the queue's clock was set back.
const MaxHeld = 24 * time.Hour

// MaxLeaseBytes bounds the payloads that Queue.Lease returns together, so that messages that are
// larger than those before fit into memory. A message with a larger payload is leased alone.
const MaxLeaseBytes = 32 << 20

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
	if c.Lease < defaults.ShortestLease {
		panic(fmt.Sprintf("outbox: Config.Lease is %v: write at least %v, or leave it 0 for 30s", c.Lease, defaults.ShortestLease))
	}
	if c.Lease > MaxHeld || c.MaxBackoff > MaxHeld {
		panic(fmt.Sprintf("outbox: Config.Lease is %v and Config.MaxBackoff %v: write at most %v for each", c.Lease, c.MaxBackoff, MaxHeld))
	}
	return c
}
