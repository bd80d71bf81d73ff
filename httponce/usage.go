package httponce

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/onlyonce-go/onlyonce"
)

// A Usage counts what the keyed requests of several handlers use up together, for
// the limits in their Configs. Handlers of one Guard share one without being
// told; give the same Usage to handlers of several Guards that share one
// process's memory. What it counts is counted in this process only, and begins
// at zero when the process starts. The zero Usage is ready to use, and must not
// be copied.
type Usage struct {
	mu       sync.Mutex
	requests int
	held     int64 // bytes of bodies in memory
	answers  int64 // and of answers, which take none from bodies
	stored   level // bytes of records
	tenants  map[string]*share
	others   share     // of the tenants for whom there is no room
	sweepAt  int       // the number of tenants at which idle ones are dropped
	swept    time.Time // when they last were
	queue    []*claimant
	partial  int64   // bytes held by bodies that wait for more
	uploads  *upload // the bodies that may be ended when they are silent
	looked   time.Time
}

// Load returns how many keyed requests are being served, and how many bytes of
// their bodies and answers are in memory. A body counts with up to 8 KiB before
// it is read, with up to 64 KiB once these have come, then with up to 1 MiB, and
// then with up to twice what has come; the first 4 KiB of an answer don't count.
func (u *Usage) Load() (requests int, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests, u.held + u.answers
}

// A share is one tenant's part of a Usage.
type share struct {
	refs    int // allowances that have it
	held    int64
	partial int64 // of that, by bodies that wait for more
	answers int64
	stored  level
}

// A claimant waits for memory.
type claimant struct {
	grant
	n, class int64
	partial  int64 // what it holds already
	granted  bool
	got      chan struct{}
}

// A grant is on whose account memory is taken.
type grant struct {
	quota  *quota
	share  *share // nil: nobody's
	held   *int64 // by the request's body
	answer *int64 // and by its answer
}

const (
	// smallBody is the length up to which a body may take all of the memory
	// that bodies may take; a quarter is kept from longer ones, so that they
	// don't keep out the many short ones.
	smallBody = 64 << 10
	// memoryWait is how long a request waits for memory.
	memoryWait = time.Second
	// longestQueue is how many requests may wait for memory.
	longestQueue = 1024
	// freeAnswer is the part of an answer that is not counted.
	freeAnswer = 4 << 10
)

// usages has the Usage of each Guard whose handlers were given none.
var usages sync.Map // of weak.Pointer[onlyonce.Guard] to *Usage

func usageOf(g *onlyonce.Guard) *Usage {
	guard := weak.Make(g)
	u, known := usages.LoadOrStore(guard, new(Usage))
	if !known {
		runtime.AddCleanup(g, func(guard weak.Pointer[onlyonce.Guard]) { usages.Delete(guard) }, guard)
	}
	return u.(*Usage)
}

// share returns the tenant's. The caller has the lock.
func (u *Usage) share(tenant string, q *quota) *share {
	s := u.tenants[tenant]
	if s == nil {
		n := len(u.tenants)
		if n >= max(u.sweepAt, fewTenants) && n < maxTenants || n >= maxTenants && time.Since(u.swept) >= time.Second {
			u.dropIdle(q)
		}
		if len(u.tenants) >= maxTenants {
			return &u.others
		}
		if u.tenants == nil {
			u.tenants = make(map[string]*share)
		}
		s = new(share)
		u.tenants[tenant] = s
	}
	s.refs++
	return s
}

// forgettable is how much of what a tenant has stored may be forgotten for another
// one, in bytes: what all have stored is counted beside it.
const forgettable = 64 << 20

// forget gives back the shares of a quota that is no longer used.
func (u *Usage) forget(byTenant map[string]*allowance) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range byTenant {
		a.share.refs--
	}
}

func (u *Usage) dropIdle(q *quota) {
	now := time.Now()
	u.swept = now
	for tenant, s := range u.tenants {
		if s.stored.fall(now, q.keeps(q.tenantStored)); s.refs == 0 && s.held == 0 && s.answers == 0 && s.stored.high <= forgettable {
			delete(u.tenants, tenant)
		}
	}
	u.sweepAt = 2 * len(u.tenants)
}

// limits returns how much memory bodies of a length may take, in all and a
// tenant's.
func (q *quota) limits(class int64) (all, each int64) {
	all, each = q.memory, q.tenantMemory
	if class > smallBody {
		all -= all / 4
		each -= each / 4
	}
	return all, each
}

// lacks says whose memory does not suffice for n more bytes of a body of a length:
// that of all, or the tenant's. The caller has the lock.
func (u *Usage) lacks(g grant, n, class int64) (ofAll, ofTenant bool) {
	if n == 0 {
		return false, false
	}
	all, each := g.quota.limits(class)
	return u.held+n > all, g.share != nil && g.share.held+n > each
}

// fits reports whether n more bytes may be taken. The caller has the lock.
func (u *Usage) fits(g grant, n, class int64) bool {
	ofAll, ofTenant := u.lacks(g, n, class)
	return !ofAll && !ofTenant
}

// isFree reports whether n more bytes may be taken before those who wait. One that
// waits for its own tenant's memory keeps out nobody else's, and one that has
// sent nothing yet keeps out none that has. The caller has the lock.
func (u *Usage) isFree(g grant, n, class int64) bool {
	if !u.fits(g, n, class) {
		return false
	}
	if class <= smallBody {
		return true
	}
	for _, c := range u.queue {
		if c.partial == 0 && *g.held > 0 {
			continue
		}
		if ofAll, _ := u.lacks(c.grant, c.n, c.class); ofAll || c.share == g.share {
			return false
		}
	}
	return true
}

// take takes n bytes. The caller has the lock.
func (u *Usage) take(g grant, n int64) {
	u.held += n
	*g.held += n
	if g.share != nil {
		g.share.held += n
	}
}

// takeAnswer takes n bytes for an answer, which can't wait. Answers may use as much
// as bodies, and are counted apart: a client that takes none of its answers keeps out
// no bodies.
func (u *Usage) takeAnswer(g grant, n int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.answers+n > g.quota.memory || g.share != nil && g.share.answers+n > g.quota.tenantMemory {
		return false
	}
	u.addAnswer(g, n)
	return true
}

// addAnswer counts n bytes of answers. The caller has the lock.
func (u *Usage) addAnswer(g grant, n int64) {
	u.answers += n
	*g.answer += n
	if g.share != nil {
		g.share.answers += n
	}
}

// wait takes n bytes as soon as there are as many, or says why there are not. Those
// who wait for more than they have hold at most half of the memory: the rest of it
// is with those who get on, so that nobody waits for memory that only waits.
func (u *Usage) wait(ctx context.Context, g grant, n, class int64) *Problem {
	u.mu.Lock()
	if u.isFree(g, n, class) {
		u.take(g, n)
		u.mu.Unlock()
		return nil
	}
	c := &claimant{grant: g, n: n, class: class, partial: *g.held, got: make(chan struct{})}
	if len(u.queue) >= longestQueue || !u.mayWait(c) {
		defer u.mu.Unlock()
		return u.lacking(g, n, class)
	}
	u.queue = append(u.queue, c)
	u.countPartial(c, c.partial)
	u.mu.Unlock()
	c.await(ctx, u)
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.granted {
		return nil
	}
	u.queue = slices.DeleteFunc(u.queue, func(other *claimant) bool { return other == c })
	u.countPartial(c, -c.partial)
	defer u.serve() // those that stood behind it
	return u.lacking(g, n, class)
}

// await waits until the memory is granted, it has taken too long, or the context
// ends, and ends silent bodies meanwhile.
func (c *claimant) await(ctx context.Context, u *Usage) {
	tick := time.NewTicker(silenceCheck)
	defer tick.Stop()
	for range memoryWait / silenceCheck {
		for _, s := range u.silent() {
			s.end()
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

// mayWait reports whether one that holds memory may wait for more.
func (u *Usage) mayWait(c *claimant) bool {
	return c.partial == 0 ||
		u.partial+c.partial <= c.quota.memory/2 && (c.share == nil || c.share.partial+c.partial <= c.quota.tenantMemory/2)
}

func (u *Usage) countPartial(c *claimant, n int64) {
	u.partial += n
	if c.share != nil {
		c.share.partial += n
	}
}

// lacking says whose memory does not suffice. The caller has the lock.
func (u *Usage) lacking(g grant, n, class int64) *Problem {
	p := overloaded
	if ofAll, ofTenant := u.lacks(g, n, class); ofTenant && !ofAll {
		p = tooMany
	}
	p.RetryAfter = time.Second
	return &p
}

// giveBack ends the use of n bytes. The caller has the lock.
func (u *Usage) giveBack(g grant, n int64) {
	if n > 0 {
		u.take(g, -n)
		u.serve()
	}
}

// serve lets those who wait go on for whom there is memory: first those of whose
// bodies something has come. The caller has the lock.
func (u *Usage) serve() {
	if len(u.queue) == 0 {
		return
	}
	begun := false // one that has begun waits for the memory of all
	u.grantTo(func(c *claimant) bool {
		if c.partial == 0 {
			return false
		}
		if u.fits(c.grant, c.n, c.class) {
			return true
		}
		ofAll, _ := u.lacks(c.grant, c.n, c.class)
		begun = begun || ofAll
		return false
	})
	u.grantTo(func(c *claimant) bool {
		after := begun || c.share != nil && c.share.partial > 0
		return c.partial == 0 && (c.class <= smallBody || !after) && u.fits(c.grant, c.n, c.class)
	})
}

// grantTo gives those who wait what they wait for, if they may have it.
func (u *Usage) grantTo(may func(*claimant) bool) {
	u.queue = slices.DeleteFunc(u.queue, func(c *claimant) bool {
		if !may(c) {
			return false
		}
		u.take(c.grant, c.n)
		u.countPartial(c, -c.partial)
		c.granted = true
		close(c.got)
		return true
	})
}
