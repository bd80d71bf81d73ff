package outbox

import (
	"math"
	"math/rand/v2"
	"time"
)

// jitter returns d changed by at most a tenth, so that relays do not act at the same
// moment.
func jitter(d time.Duration) time.Duration {
	d = min(d, math.MaxInt64/2)
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}

// whileAway returns how long a message waits for an unreachable broker: Config.Backoff if
// the broker accepted other messages, and otherwise 0, because the relay itself pauses.
func (c *Config) whileAway(tookOthers bool) time.Duration {
	if !tookOthers {
		return 0
	}
	return jitter(c.Backoff)
}

// withoutRoute returns how long a message of the given age waits if the broker has no
// route for it. Later messages are leased meanwhile. It has no jitter, so that messages that
// were leased together are leased together again, and is in steps, so that many have the same verdict.
func (r *Relay) withoutRoute(age time.Duration) time.Duration {
	step := min(r.cfg.Backoff, r.cfg.MaxBackoff)
	return r.behindOthers(min(max(age/4, step), r.cfg.MaxBackoff)).Truncate(step)
}

// behindOthers returns how long a message waits that was not published: the given time. If
// there are so many such messages that the relay has published nothing for longer than that,
// it waits as long as this has lasted, so that it is not due again before the relay has
// reached the others.
func (r *Relay) behindOthers(wait time.Duration) time.Duration {
	return min(max(wait, time.Since(r.routeAt)), MaxHeld)
}

// retryIn returns how long messages of a wave wait after so many failures. Those that have failed
// equally often wait equally long, so that many have the same verdict.
func (r *Relay) retryIn() func(attempts int) time.Duration {
	waits := make(map[int]time.Duration)
	return func(attempts int) time.Duration {
		if _, ok := waits[attempts]; !ok {
			waits[attempts] = r.behindOthers(jitter(r.cfg.backoff(attempts)))
		}
		return waits[attempts]
	}
}

// backoff returns how long a message waits after the given number of failures.
func (c *Config) backoff(attempts int) time.Duration {
	d := c.Backoff
	for range attempts - 1 {
		if d *= 2; d >= c.MaxBackoff {
			return c.MaxBackoff
		}
	}
	return min(d, c.MaxBackoff)
}
