package console

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
)

const (
	gaugeEvery  = 2 * time.Second        // how often a number is read at most
	gaugeWithin = 5 * time.Second        // how long that may take
	gaugeShare  = 20                     // the part of the time in which a slow store is read: one in so many
	gaugeWait   = 250 * time.Millisecond // how long a page waits for the numbers
	maxCounted  = 1000                   // running commands that are counted
)

// A reading holds the numbers that a store reports about itself. A number that could not be read is unknown.
type reading struct {
	healthy, healthKnown bool

	unresolved       int
	oldestUnresolved time.Duration
	unresolvedKnown  bool

	running       int // maxCounted: or more
	oldestRunning time.Duration
	runningKnown  bool

	lag      outbox.Lag
	lagKnown bool
}

// decisions returns how many commands wait for a decision, or "".
func (r reading) decisions() string { return waiting(r.unresolvedKnown, r.unresolved) }

// parkedCount returns how many messages are parked, or "".
func (r reading) parkedCount() string { return waiting(r.lagKnown, r.lag.Parked) }

func waiting(known bool, n int) string {
	switch {
	case !known || n == 0:
		return ""
	case n > 999:
		return "999+"
	}
	return strconv.Itoa(n)
}

// gauges read the numbers of a store for all pages together, and only while someone looks
// at them.
type gauges struct {
	probes []*probe

	mu      sync.Mutex
	current reading
}

// A probe reads some of the numbers.
type probe struct {
	read func(context.Context) (apply func(*reading))
	due  time.Time
	done chan struct{} // closed when the reading that runs has ended; nil: none runs
}

// newGauges returns the gauges of a console.
func newGauges(c *console, health func(context.Context) error) *gauges {
	g := &gauges{}
	add := func(read func(context.Context) func(*reading)) { g.probes = append(g.probes, &probe{read: read}) }
	if health == nil {
		health = c.canList
	}
	add(func(ctx context.Context) func(*reading) {
		err := health(ctx)
		return func(r *reading) { r.healthy, r.healthKnown = err == nil, true }
	})
	add(c.readRunning)
	if counter, ok := c.store.(interface {
		Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
	}); ok {
		add(func(ctx context.Context) func(*reading) {
			n, oldest, err := counter.Unresolved(ctx)
			return func(r *reading) { r.unresolved, r.oldestUnresolved, r.unresolvedKnown = n, oldest, err == nil }
		})
	}
	if c.outbox != nil {
		add(func(ctx context.Context) func(*reading) {
			lag, err := c.outbox.Lag(ctx)
			return func(r *reading) { r.lag, r.lagKnown = lag, err == nil }
		})
	}
	return g
}

// canList returns an error if the newest record can't be read.
func (c *console) canList(ctx context.Context) error {
	for _, err := range c.store.List(ctx, onlyonce.Filter{Limit: 1}) {
		return err
	}
	return nil
}

// readRunning counts the commands that an attempt holds.
func (c *console) readRunning(ctx context.Context) func(*reading) {
	n, oldest, err := 0, time.Duration(0), error(nil)
	for r, failed := range c.store.List(ctx, onlyonce.Filter{State: onlyonce.StateProcessing, Limit: maxCounted}) {
		if failed != nil {
			err = failed
			break
		}
		if r.LeaseLeft > 0 {
			n, oldest = n+1, max(oldest, time.Since(claimedAt(r.CreatedAt, r.Fence)))
		}
	}
	return func(r *reading) { r.running, r.oldestRunning, r.runningKnown = n, oldest, err == nil }
}

// claimedAt returns when a command with a fence was claimed, or when a person decided about
// it: a fence is higher than the store's clock in microseconds, usually by nothing. Without
// a time that is possible, it is when the record was created.
func claimedAt(created time.Time, fence int64) time.Time {
	at := time.UnixMicro(fence)
	if at.Before(created) || at.After(time.Now().Add(time.Minute)) {
		return created
	}
	return at
}

// last returns the numbers that were read last, and has those read that are due.
func (g *gauges) last() reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.probes {
		if p.done == nil && !time.Now().Before(p.due) {
			p.done = make(chan struct{})
			go g.run(p, p.done)
		}
	}
	return g.current
}

// fresh is like last, but waits a moment for the numbers that are being read.
func (g *gauges) fresh(ctx context.Context) reading {
	g.last()
	wait := time.NewTimer(gaugeWait)
	defer wait.Stop()
	for _, p := range g.probes {
		g.mu.Lock()
		done := p.done
		g.mu.Unlock()
		if done == nil {
			continue
		}
		select {
		case <-done:
		case <-wait.C:
			return g.last()
		case <-ctx.Done():
			return g.last()
		}
	}
	return g.last()
}

// refresh has all numbers read that are not being read, because a person has just changed
// something, and waits a moment for them.
func (g *gauges) refresh(ctx context.Context) {
	g.mu.Lock()
	for _, p := range g.probes {
		p.due = time.Time{}
	}
	g.mu.Unlock()
	g.fresh(ctx)
}

// run reads the numbers of a probe. Those of a slow store are read less often.
func (g *gauges) run(p *probe, done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugeWithin)
	defer cancel()
	began := time.Now()
	apply := p.read(ctx)
	took := time.Since(began)
	g.mu.Lock()
	defer g.mu.Unlock()
	apply(&g.current)
	p.due, p.done = time.Now().Add(max(gaugeEvery, gaugeShare*took)), nil
	close(done)
}
