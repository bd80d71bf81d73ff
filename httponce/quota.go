package httponce

import (
	"sync"
	"time"
)

// A quota limits what one tenant may ask for.
type quota struct {
	inFlight int     // 0: any number
	burst    float64 // new keys at once; 0: any number
	perSec   float64

	mu       sync.Mutex
	byTenant map[string]*allowance
	others   allowance // shared by the tenants for whom there is no room
	swept    time.Time // when idle allowances were last dropped
}

// maxTenants bounds a quota's memory: that many tenants may be active at a
// time and have an allowance of their own.
const maxTenants = 1 << 16

// An allowance is what is left to a tenant.
type allowance struct {
	inFlight int
	spent    float64 // of the burst, at the time at
	at       time.Time
}

func newQuota(c Config) *quota {
	if c.MaxInFlight == 0 && c.MaxNewKeys == 0 {
		return nil
	}
	return &quota{
		inFlight: c.MaxInFlight, burst: float64(c.MaxNewKeys), perSec: float64(c.MaxNewKeys) / 60,
		byTenant: make(map[string]*allowance),
	}
}

// enter lets a request of the tenant in and returns its allowance, or says when
// to ask again.
func (q *quota) enter(tenant string) (a *allowance, retryAfter time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a = q.of(tenant)
	q.refill(a)
	if q.inFlight > 0 && a.inFlight >= q.inFlight {
		return nil, time.Second
	}
	if q.burst > 0 {
		if over := a.spent + 1 - q.burst; over > 0 {
			return nil, time.Duration(over / q.perSec * float64(time.Second))
		}
		a.spent++
	}
	a.inFlight++
	return a, 0
}

// leave ends a request that was let in; it spends nothing unless its key was new.
func (q *quota) leave(tenant string, a *allowance, isNew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.inFlight--
	if !isNew {
		a.spent = max(a.spent-1, 0)
	}
	if a.inFlight == 0 && a.spent == 0 && a != &q.others {
		delete(q.byTenant, tenant)
	}
}

// of returns the tenant's allowance. One that is in use is never dropped.
func (q *quota) of(tenant string) *allowance {
	if a := q.byTenant[tenant]; a != nil {
		return a
	}
	if len(q.byTenant) >= maxTenants && time.Since(q.swept) >= time.Second {
		q.dropIdle()
	}
	if len(q.byTenant) >= maxTenants {
		return &q.others
	}
	a := &allowance{at: time.Now()}
	q.byTenant[tenant] = a
	return a
}

func (q *quota) dropIdle() {
	q.swept = time.Now()
	for tenant, a := range q.byTenant {
		if q.refill(a); a.inFlight == 0 && a.spent == 0 {
			delete(q.byTenant, tenant)
		}
	}
}

func (q *quota) refill(a *allowance) {
	now := time.Now()
	a.spent = max(a.spent-now.Sub(a.at).Seconds()*q.perSec, 0)
	a.at = now
}
