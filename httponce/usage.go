package httponce

import (
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/onlyonce-go/onlyonce"
)

// A Usage counts the resources that the keyed requests of several handlers use
// together, for the limits in their Configs. Handlers of one Guard share a
// Usage by default. Give the same Usage to handlers of several Guards that
// share one process's memory. The counters cover this process only and start at
// zero with it. The zero Usage is ready to use. A Usage must not be copied.
type Usage struct {
	mu       sync.Mutex
	requests int
	bodies   pool
	answers  pool  // takes nothing from bodies
	stored   level // bytes of records
	tenants  map[string]*share
	others   share     // of the tenants for whom there is no room
	sweepAt  int       // the number of tenants at which idle ones are dropped
	swept    time.Time // when they last were
}

// Load returns how many keyed requests are being served, and how many bytes of
// their bodies and responses are in memory. A body counts as up to 8 KiB before
// it is read, as up to 64 KiB once these have arrived, then as up to 1 MiB, and
// then as up to twice what has arrived. The first 4 KiB of a response don't
// count.
func (u *Usage) Load() (requests int, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests, u.bodies.held + u.answers.held
}

// A share is one tenant's part of a Usage.
type share struct {
	refs    int // allowances that have it
	bodies  part
	answers part
	stored  level
}

// freeAnswer is the part of an answer that is not counted.
const freeAnswer = 4 << 10

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
		if s.stored.fall(now, q.keeps(q.tenantStored)); s.refs == 0 && s.bodies.held == 0 && s.answers.held == 0 && s.stored.high <= forgettable {
			delete(u.tenants, tenant)
		}
	}
	u.sweepAt = 2 * len(u.tenants)
}
