package httponce

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A quota holds the requests of one handler to the limits of its Config.
type quota struct {
	usage    *Usage // whose lock guards all of the quota
	inFlight int
	newKeys  float64 // at once, and a minute

	memory, tenantMemory int64
	stored, tenantStored float64
	keep                 atomic.Int64 // how long a record is kept, in nanoseconds

	byTenant map[string]*allowance
	others   allowance // shared by the tenants for whom there is no room
	sweepAt  int       // the number of tenants at which idle ones are dropped
	swept    time.Time // when they last were, for want of room
}

const (
	// maxTenants bounds the memory of a quota and of a Usage: that many tenants
	// may be active at a time and be counted each for itself.
	maxTenants = 1 << 16
	// fewTenants are so few that nobody looks which of them are idle.
	fewTenants = 1 << 10
)

// An allowance is what a tenant uses of a quota.
type allowance struct {
	share    *share
	inFlight int
	keys     level // new ones
}

// A level rises with use, and falls with time.
type level struct {
	high float64 // at the time at
	at   time.Time
}

// fall lets the level fall until now.
func (l *level) fall(now time.Time, perSec float64) {
	l.high = max(l.high-now.Sub(l.at).Seconds()*perSec, 0)
	l.at = now
}

// rise raises the level as of now.
func (l *level) rise(now time.Time, n, perSec float64) {
	l.fall(now, perSec)
	l.high += n
}

// full says how long it takes until the level may rise by more; 0: it may.
func (l *level) full(more, limit, perSec float64) time.Duration {
	if l.high+more <= limit {
		return 0
	}
	l.fall(time.Now(), perSec)
	if over := l.high + more - limit; over > 0 {
		return max(time.Duration(over/perSec*float64(time.Second)), time.Millisecond)
	}
	return 0
}

func newQuota(u *Usage, c Config) *quota {
	q := &quota{
		usage: u, inFlight: c.MaxInFlight, newKeys: float64(c.MaxNewKeys),
		memory: c.MaxMemory, tenantMemory: c.MaxTenantMemory,
		stored: float64(c.MaxStored), tenantStored: float64(c.MaxTenantStored),
		byTenant: make(map[string]*allowance),
	}
	q.others.share = &u.others
	runtime.AddCleanup(q, u.forget, q.byTenant) // a handler may be superseded, and the Usage go on
	q.keep.Store(int64(24 * time.Hour))         // until a record tells
	return q
}

// keysPerSec is how fast the level of new keys falls.
func (q *quota) keysPerSec() float64 { return q.newKeys / 60 }

// keeps returns by how much what is stored falls in a second if the limit is
// reached: records expire as evenly as they came.
func (q *quota) keeps(limit float64) float64 {
	return limit / time.Duration(q.keep.Load()).Seconds()
}

// enter lets a call of the tenant in, and takes memory for the first n bytes of its
// body if there is as much at once; or it says why not.
func (q *quota) enter(c *call, tenant string, n, class int64) (taken bool, refused *Problem) {
	u := q.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	a := q.of(tenant)
	if why, wait := q.reached(a); wait > 0 {
		p := *why
		p.RetryAfter = wait
		return false, &p
	}
	a.inFlight++
	u.requests++
	c.allowed = a
	s := c.scratch
	s.incoming.begin(q, &u.bodies, &a.share.bodies)
	s.outgoing.begin(q, &u.answers, &a.share.answers)
	if taken = s.incoming.isFree(n, class); taken {
		s.incoming.add(n)
	}
	return taken, nil
}

// reached says which limit is reached by one more request of an allowance, and for
// how long; 0: none.
func (q *quota) reached(a *allowance) (*Problem, time.Duration) {
	if a.inFlight >= q.inFlight {
		return &tooMany, time.Second
	}
	if wait := a.keys.full(float64(a.inFlight+1), q.newKeys, q.keysPerSec()); wait > 0 {
		return &tooMany, wait
	}
	if wait := a.share.stored.full(0, q.tenantStored, q.keeps(q.tenantStored)); wait > 0 {
		return &tooMany, wait
	}
	return &overloaded, q.usage.stored.full(0, q.stored, q.keeps(q.stored))
}

// release ends a call that was let in, and gives back the memory that it used. If its
// key was new that counts, and so do the bytes that are stored of it.
func (q *quota) release(c *call, isNew bool) {
	u, a := q.usage, c.allowed
	u.mu.Lock()
	defer u.mu.Unlock()
	a.inFlight--
	u.requests--
	c.scratch.incoming.giveBack()
	c.scratch.outgoing.giveBack()
	if !isNew && c.stored == 0 {
		return
	}
	now := time.Now()
	if isNew {
		a.keys.rise(now, 1, q.keysPerSec())
	}
	if c.stored > 0 {
		stored := float64(c.stored)
		a.share.stored.rise(now, stored, q.keeps(q.tenantStored))
		u.stored.rise(now, stored, q.keeps(q.stored))
	}
}

// of returns the tenant's allowance. One that is in use is never dropped.
func (q *quota) of(tenant string) *allowance {
	if a := q.byTenant[tenant]; a != nil {
		return a
	}
	n := len(q.byTenant)
	if n >= max(q.sweepAt, fewTenants) && n < maxTenants || n >= maxTenants && time.Since(q.swept) >= time.Second {
		q.dropIdle()
	}
	if len(q.byTenant) >= maxTenants {
		return &q.others
	}
	a := &allowance{share: q.usage.share(tenant, q)}
	q.byTenant[tenant] = a
	return a
}

func (q *quota) dropIdle() {
	q.swept = time.Now()
	for tenant, a := range q.byTenant {
		if a.keys.fall(q.swept, q.keysPerSec()); a.inFlight == 0 && a.keys.high == 0 {
			a.share.refs--
			delete(q.byTenant, tenant)
		}
	}
	q.sweepAt = 2 * len(q.byTenant)
}
