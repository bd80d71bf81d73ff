package httponce

import (
	"context"
	"slices"
	"time"
)

// A pool is the memory that the bodies of requests may take, or their answers. The
// lock of its Usage guards it.
type pool struct {
	held    int64
	partial int64 // of that, by flows that wait for more
	queue   []*claimant
	nobodys int64     // places in the queue of requests that are no tenant's
	flows   *flow     // those that hold some of it
	looked  time.Time // when silent ones were last looked for
}

// A part is what one tenant has of a pool, and how many of its flows wait for more.
type part struct{ held, partial, waiting int64 }

// A claimant is a flow that waits for n bytes more, which make it one of a length.
type claimant struct {
	*flow
	n, class int64
	partial  int64 // what it holds already
	granted  bool
	got      chan struct{}
}

const (
	// smallFlow is the length up to which a body or an answer may take all of
	// its pool; a quarter is kept from longer ones, so that they don't keep out
	// the many short ones.
	smallFlow = 64 << 10
	// memoryWait is how long a flow waits for memory.
	memoryWait = time.Second
	// longestQueue is how many flows may wait for the memory of a pool. Tenants
	// share the places as they share the memory.
	longestQueue = 1024
)

// limits returns how much of a pool flows of a length may hold, in all and a
// tenant's.
func (q *quota) limits(class int64) (all, each int64) {
	all, each = q.memory, q.tenantMemory
	if class > smallFlow {
		all -= all / 4
		each -= each / 4
	}
	return all, each
}

// lacks says whose memory does not suffice for n more bytes of a flow of a length:
// that of all, or the tenant's. The caller has the lock.
func (f *flow) lacks(n, class int64) (ofAll, ofTenant bool) {
	if n == 0 {
		return false, false
	}
	all, each := f.quota.limits(class)
	free := all - f.pool.held - n
	return free < 0, f.part != nil && (f.part.held+n > each || f.part.held > f.held && isGreedy(f.part.held+n, free, all, each))
}

// isGreedy reports whether a tenant that held so much memory, or so many places in the
// queue, would leave too little free to others. As long as it is alone it may hold its share, and each that joins
// it makes the shares of all smaller: with a share of a half, one may hold a half,
// two a third each, and three a quarter each, so that something is always left
// for another. One request of a tenant is let in whatever it leaves free.
func isGreedy(held, free, all, each int64) bool {
	return float64(held)*float64(all-each) > float64(each)*float64(free)
}

// fits reports whether the flow may have n more bytes. The caller has the lock.
func (f *flow) fits(n, class int64) bool {
	ofAll, ofTenant := f.lacks(n, class)
	return !ofAll && !ofTenant
}

// isFree reports whether the flow may have n more bytes before those that wait.
// One that waits for its own tenant's memory keeps out nobody else's, and one that
// holds nothing yet keeps out none that does. The caller has the lock.
func (f *flow) isFree(n, class int64) bool {
	if !f.fits(n, class) {
		return false
	}
	if class <= smallFlow {
		return true
	}
	for _, c := range f.pool.queue {
		if c.partial == 0 && f.held > 0 {
			continue
		}
		if ofAll, _ := c.lacks(c.n, c.class); ofAll || c.part == f.part {
			return false
		}
	}
	return true
}

// add changes what the flow holds by n bytes. The caller has the lock.
func (f *flow) add(n int64) {
	before := f.held
	f.held += n
	f.pool.held += n
	if f.part != nil {
		f.part.held += n
	}
	switch {
	case before == 0 && f.held > 0:
		f.list()
	case before > 0 && f.held == 0:
		f.unlist()
	}
}

// take takes n bytes if there are as many at once.
func (f *flow) take(n, class int64) bool {
	u := f.quota.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if !f.isFree(n, class) {
		return false
	}
	f.add(n)
	return true
}

// wait takes n bytes as soon as there are as many, or says why there are not within
// so long; without patience it only ends the flows that are silent. Those
// that wait for more than they have hold at most half of the memory: the rest of it
// is with those that get on, so that nobody waits for memory that only waits.
func (f *flow) wait(ctx context.Context, patience time.Duration, n, class int64) *Problem {
	u, p := f.quota.usage, f.pool
	u.mu.Lock()
	if f.isFree(n, class) {
		f.add(n)
		u.mu.Unlock()
		return nil
	}
	c := &claimant{flow: f, n: n, class: class, partial: f.held, got: make(chan struct{})}
	if !c.mayWait() {
		defer u.mu.Unlock()
		return f.lacking(n, class)
	}
	p.queue = append(p.queue, c)
	c.count(1)
	u.mu.Unlock()
	c.await(ctx, patience)
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.granted {
		return nil
	}
	p.queue = slices.DeleteFunc(p.queue, func(other *claimant) bool { return other == c })
	c.count(-1)
	defer p.serve() // those that stood behind it
	return f.lacking(n, class)
}

// await waits until the memory is granted, it has taken too long, or the context
// ends, and ends silent flows meanwhile.
func (c *claimant) await(ctx context.Context, patience time.Duration) {
	tick := time.NewTicker(silenceCheck)
	defer tick.Stop()
	for ; ; patience -= silenceCheck {
		for _, s := range c.pool.silent(c.quota.usage) {
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

// mayWait reports whether the flow may wait: there must be a place in the queue for its
// tenant, and if it holds memory already, the flows that do must leave enough to others.
// The caller has the lock.
func (c *claimant) mayWait() bool {
	free := longestQueue - int64(len(c.pool.queue)) - 1
	if waiting := *c.places(); free < 0 || waiting > 0 && isGreedy(waiting+1, free, c.quota.memory, c.quota.tenantMemory) {
		return false
	}
	return c.partial == 0 ||
		c.pool.partial+c.partial <= c.quota.memory/2 && (c.part == nil || c.part.partial+c.partial <= c.quota.tenantMemory/2)
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

// lacking says whose memory does not suffice. The caller has the lock.
func (f *flow) lacking(n, class int64) *Problem {
	p := overloaded
	if ofAll, ofTenant := f.lacks(n, class); ofTenant && !ofAll {
		p = tooMany
	}
	p.RetryAfter = time.Second
	return &p
}

// giveBack gives back all that the flow holds. The caller has the lock.
func (f *flow) giveBack() {
	if f.held > 0 {
		f.add(-f.held)
		f.pool.serve()
	}
}

// serve lets those that wait go on for whom there is memory: first those that hold
// some. The caller has the lock.
func (p *pool) serve() {
	if len(p.queue) == 0 {
		return
	}
	begun := false // one that has begun waits for the memory of all
	p.grantTo(func(c *claimant) bool {
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
	p.grantTo(func(c *claimant) bool {
		after := begun || c.part != nil && c.part.partial > 0
		return c.partial == 0 && (c.class <= smallFlow || !after) && c.fits(c.n, c.class)
	})
}

// grantTo gives those that wait what they wait for, if they may have it.
func (p *pool) grantTo(may func(*claimant) bool) {
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
