package resources

import (
	"context"
	"slices"
	"time"
)

const (
	// memoryWait is how long a flow waits for memory.
	memoryWait = time.Second
	// longestQueue is how many flows may wait for the memory of a pool. Tenants
	// share the places as they share the memory.
	longestQueue = 1024
	// silenceCheck is how often silent flows are searched for.
	silenceCheck = memoryWait / 10
)

// Wait takes n bytes, and waits for up to a second until they are free. It returns nil
// if it has taken them, and otherwise whose memory is used up.
func (f *Flow) Wait(ctx context.Context, n, class int64) *Rejection {
	c, rejected := f.enqueue(n, class)
	if c == nil {
		return rejected
	}
	c.await(ctx)
	return c.cancelWait()
}

// TakeOrEndSilent takes n bytes if they are free now. Otherwise it does not wait,
// but ends silent flows, as many as hold so much, for those that come later.
func (f *Flow) TakeOrEndSilent(n, class int64) *Rejection {
	c, rejected := f.enqueue(n, class)
	if c == nil {
		return rejected
	}
	silent := c.silent()
	rejected = c.cancelWait()
	for _, s := range silent {
		s.end()
	}
	return rejected
}

// enqueue takes n bytes if they are free, and returns nil. Otherwise it returns the
// flow as a claimant in the queue or, if the flow can't wait, whose memory is used up.
// Flows that wait for more than they have hold at most half of the memory. The
// other half belongs to flows that make progress, so that flows never all wait
// for memory that only waits.
func (f *Flow) enqueue(n, class int64) (*claimant, *Rejection) {
	f.usage.Lock()
	defer f.usage.Unlock()
	if f.isFree(n, class) {
		f.add(n)
		return nil, nil
	}
	c := &claimant{Flow: f, n: n, class: class, partial: f.held, got: make(chan struct{})}
	if !c.mayWait() {
		return nil, f.rejection(n, class)
	}
	f.pool.queue = append(f.pool.queue, c)
	c.count(1)
	return c, nil
}

// cancelWait removes the claimant from the queue. It returns nil if the memory was granted,
// and otherwise whose memory is used up.
func (c *claimant) cancelWait() *Rejection {
	c.usage.Lock()
	defer c.usage.Unlock()
	if c.granted {
		return nil
	}
	c.pool.queue = slices.DeleteFunc(c.pool.queue, func(other *claimant) bool { return other == c })
	c.count(-1)
	defer c.pool.serve() // those that stood behind it
	return c.rejection(c.n, c.class)
}

// await waits until the memory is granted, it has taken too long, or the context
// ends. It ends silent flows meanwhile.
func (c *claimant) await(ctx context.Context) {
	tick := time.NewTicker(silenceCheck)
	defer tick.Stop()
	for patience := memoryWait; ; patience -= silenceCheck {
		for _, s := range c.silent() {
			s.end()
		}
		if patience <= 0 {
			return
		}
		select {
		case <-c.got:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// mayWait reports whether the flow may wait. There must be a place in the queue
// for its tenant, and if it already holds memory, the waiting flows that do must
// leave enough to others. The caller holds the lock.
func (c *claimant) mayWait() bool {
	free := longestQueue - int64(len(c.pool.queue)) - 1
	if waiting := *c.places(); free < 0 || waiting > 0 && isGreedy(waiting+1, free, c.limits.Memory, c.limits.TenantMemory) {
		return false
	}
	return c.partial == 0 ||
		c.pool.partial+c.partial <= c.limits.Memory/2 && (c.part == nil || c.part.partial+c.partial <= c.limits.TenantMemory/2)
}

// places returns the number of places in the queue that the claimant's tenant has.
func (c *claimant) places() *int64 {
	if c.part == nil {
		return &c.pool.nobodys
	}
	return &c.part.waiting
}

// count counts the claimant as one that waits (n is 1), or no longer (-1).
func (c *claimant) count(n int64) {
	*c.places() += n
	c.pool.partial += n * c.partial
	if c.part != nil {
		c.part.partial += n * c.partial
	}
}

// rejection returns whose memory is used up. The caller holds the lock.
func (f *Flow) rejection(n, class int64) *Rejection {
	ofAll, ofTenant := f.lacks(n, class)
	if ofTenant && !ofAll {
		return &Rejection{Limit: LimitTenantMemory, OfTenant: true, RetryAfter: time.Second}
	}
	return &Rejection{Limit: LimitMemory, RetryAfter: time.Second}
}

// GiveBack gives back all memory that the flow holds.
func (f *Flow) GiveBack() {
	if f.held == 0 {
		return
	}
	f.usage.Lock()
	defer f.usage.Unlock()
	f.giveBack()
}

// giveBack is GiveBack for a caller that holds the lock.
func (f *Flow) giveBack() {
	if f.held > 0 {
		f.add(-f.held)
		f.pool.serve()
	}
}

// serve grants memory to those that wait, first to those that already hold
// some. The caller holds the lock.
func (p *pool) serve() {
	if len(p.queue) == 0 {
		return
	}
	begun := false // one that already holds memory waits for the memory of all
	p.grant(func(c *claimant) bool {
		if c.partial == 0 {
			return false
		}
		if c.fits(c.n, c.class) {
			return true
		}
		ofAll, _ := c.lacks(c.n, c.class)
		begun = begun || ofAll
		return false
	})
	p.grant(func(c *claimant) bool {
		after := begun || c.part != nil && c.part.partial > 0
		return c.partial == 0 && (c.class <= smallFlow || !after) && c.fits(c.n, c.class)
	})
}

// grant gives memory to the claimants that may have it.
func (p *pool) grant(may func(*claimant) bool) {
	p.queue = slices.DeleteFunc(p.queue, func(c *claimant) bool {
		if !may(c) {
			return false
		}
		c.add(c.n)
		c.count(-1)
		c.granted = true
		close(c.got)
		return true
	})
}

// silent returns the flows to end for those that wait for memory: those that
// have been silent for longest, as many as are needed. It returns none if the
// pool was searched a moment ago.
func (c *claimant) silent() (ends []silence) {
	c.usage.Lock()
	defer c.usage.Unlock()
	p, now := c.pool, time.Now()
	if now.Sub(p.checked) < silenceCheck {
		return nil
	}
	p.checked = now
	all, each := int64(0), map[*part]int64{}
	for _, c := range p.queue {
		if _, ofTenant := c.lacks(c.n, c.class); ofTenant {
			each[c.part] += c.n
		} else {
			all += c.n
		}
	}
	for _, f := range p.silentFlows(now) {
		frees, of := f.flow.held, f.flow.part
		if ended := f.silence.ended; !ended.IsZero() && now.Sub(ended) > memoryWait {
			frees = 0 // the deadline does not end it, so it may give nothing back
		}
		switch {
		case of != nil && each[of] > 0:
			each[of] -= frees
		case all > 0:
			all -= frees
		default:
			continue
		}
		ends = append(ends, f.silence)
	}
	return ends
}

// A silentFlow is a flow that is silent.
type silentFlow struct {
	flow    *Flow
	silence silence
}

// silentFlows returns the flows that are silent, the one that has been for
// longest first. The caller holds the lock.
func (p *pool) silentFlows(now time.Time) (silent []silentFlow) {
	for f := p.flows; f != nil; f = f.next {
		if s, ok := f.silentSince(now); ok {
			silent = append(silent, silentFlow{f, s})
		}
	}
	slices.SortFunc(silent, func(a, b silentFlow) int { return a.silence.since.Compare(b.silence.since) })
	return silent
}
