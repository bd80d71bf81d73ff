package dynamostore

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// DynamoDB has no clock that a condition can use, but every response has a Date, in whole
// seconds. A process keeps two bounds for what the service's clock shows, and adds to them
// the time that has passed on its own monotonic clock. A response moves the lower bound up to its
// Date: the clock showed that before the response arrived. It moves the upper bound down to
// one second later: the clock had not shown that when the request was sent.
//
// Leases and keeps begin at the upper bound and end at the lower one, so none ends early,
// however wide apart the bounds are. They are at most a second and a response apart, and
// after some hundred responses usually only as much as a response takes.
//
// Dates that contradict the bounds by more than the skew make the clock start over, as a new
// generation, with that Date. It is used once another Date has confirmed it. A change that
// was written by the clock of a generation that has ended meanwhile is written again.
type clock struct {
	start time.Time
	skew  int64

	mu         sync.Mutex
	dates      int    // that agree in this generation
	generation uint64 // counted from 1
	at         int64  // the local time of the bounds
	lower      int64
	upper      int64
	begun      int64 // the latest begin that was given out
	wrong      int64 // by how much the last Date contradicted the bounds
	undated    bool  // the last response had no Date
}

const (
	// drift is by which part of the time that has passed a monotonic clock may be wrong.
	drift = 2000

	// second is the resolution of a Date.
	second = int64(time.Second / time.Microsecond)
)

func newClock(skew time.Duration) *clock {
	return &clock{start: time.Now(), skew: skew.Microseconds()}
}

// local returns the process's monotonic clock.
func (c *clock) local() int64 { return time.Since(c.start).Microseconds() }

// A reading holds the times that the clock shows, in microseconds.
type reading struct {
	judging    int64 // leases and keeps that have ended by it have ended
	begin      int64 // the time at which a call that begins now begins; each reading has a later one
	generation uint64
}

// read returns the clock, or an error while it is not known well enough.
func (c *clock) read() (reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dates < 2 && c.undated:
		return reading{}, clockError{"DynamoDB's responses have no header Date, which the store uses as its clock: let nothing on the way to DynamoDB remove it"}
	case c.dates < 2 && c.wrong > 0:
		return reading{}, clockError{fmt.Sprintf("the Date of one of DynamoDB's responses is off by %v, as the others and the monotonic clock of this process have it, and a skew of %v is allowed: the process was suspended, or a clock is wrong",
			time.Duration(c.wrong)*time.Microsecond, time.Duration(c.skew)*time.Microsecond)}
	case c.dates < 2:
		return reading{}, clockError{"too few responses of DynamoDB have shown what time it is"}
	}
	lower, upper := c.bounds(c.local())
	c.begun = max(lower, upper, c.begun+1)
	return reading{judging: lower - c.skew, begin: c.begun, generation: c.generation}, nil
}

// current reports whether a generation is still that of the clock.
func (c *clock) current(generation uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation == generation
}

// bounds returns the bounds at a local time that is not before their own. The caller has
// locked mu.
func (c *clock) bounds(local int64) (lower, upper int64) {
	passed := local - c.at
	return c.lower + passed - passed/drift, c.upper + passed + passed/drift
}

// observe takes in the Date of a response whose request was sent at a local time. The
// response has just arrived.
func (c *clock) observe(sent, date int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.local()
	lower, upper := date, date+second+(now-sent)+(now-sent)/drift
	c.undated = false
	if c.dates > 0 {
		l, u := c.bounds(now)
		l, u = max(l, lower), min(u, upper)
		if l-u <= c.skew {
			c.dates++
			c.at, c.lower, c.upper = now, l, u
			return
		}
		c.wrong = l - u
	}
	c.dates, c.at, c.lower, c.upper, c.begun = 1, now, lower, upper, 0
	c.generation++
}

// watch makes a client show the clock the Date of each response of DynamoDB, and tells
// which calls have sent a request.
func (c *clock) watch(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("OnlyonceClock", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		sent := c.local()
		if s, ok := ctx.Value(sentKey{}).(*bool); ok {
			*s = true
		}
		out, metadata, err := next.HandleDeserialize(ctx, in)
		if r, ok := out.RawResponse.(*smithyhttp.Response); ok && r != nil {
			c.response(sent, r.Header)
		}
		return out, metadata, err
	}), middleware.After)
}

// response takes in the header of a response. One without a request ID comes from something
// on the way to DynamoDB, and one with an Age from a cache.
func (c *clock) response(sent int64, h http.Header) {
	if h.Get("X-Amzn-Requestid") == "" || h.Get("Age") != "" {
		return
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		c.mu.Lock()
		c.undated = true
		c.mu.Unlock()
		return
	}
	c.observe(sent, date.UnixMicro())
}

// sentKey is the context key of the flag that a request was sent.
type sentKey struct{}

// A clockError says that the clock can't be used yet. Another response may help.
type clockError struct{ text string }

func (e clockError) Error() string { return e.text }
