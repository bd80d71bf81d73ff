package resources

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A Quota holds the requests of one handler to its Limits.
type Quota struct {
	usage    *Usage // whose lock guards all of the Quota
	limits   Limits
	keep     atomic.Int64 // how long a record is kept, in nanoseconds
	byTenant map[string]*allowance
	others   allowance // shared by the tenants for which there is no room
	sweepAt  int       // the number of tenants at which idle ones are dropped
	swept    time.Time // when idle tenants were last dropped to make room
}

// An allowance is the part of a Quota that one tenant uses.
type allowance struct {
	share    *share
	inFlight int
	keys     level // new ones
}

// NewQuota returns a Quota whose requests are counted by u. It assumes that
// records are kept for a day until SetKeep tells.
func NewQuota(u *Usage, limits Limits) *Quota {
	q := &Quota{usage: u, limits: limits, byTenant: make(map[string]*allowance)}
	q.others.share = &u.others
	// A reload may replace a handler while the Usage stays in use.
	runtime.AddCleanup(q, func(byTenant map[string]*allowance) {
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, a := range byTenant {
			a.share.refs--
		}
	}, q.byTenant)
	q.SetKeep(24 * time.Hour)
	return q
}

// SetKeep tells for how long a record is kept.
func (q *Quota) SetKeep(keep time.Duration) { q.keep.Store(int64(keep)) }

// reached returns which limit one more request would exceed, or nil.
func (q *Quota) reached(a *allowance) *Rejection {
	if a.inFlight >= q.limits.InFlight {
		return &Rejection{Limit: LimitInFlight, OfTenant: true, RetryAfter: time.Second}
	}
	if wait := a.keys.full(float64(a.inFlight+1), float64(q.limits.NewKeys), q.limits.keysPerSec()); wait > 0 {
		return &Rejection{Limit: LimitNewKeys, OfTenant: true, RetryAfter: wait}
	}
	if wait := a.share.stored.full(q.limits.TenantStored); wait > 0 {
		return &Rejection{Limit: LimitTenantStored, OfTenant: true, RetryAfter: wait}
	}
	if wait := q.usage.stored.full(q.limits.Stored); wait > 0 {
		return &Rejection{Limit: LimitStored, RetryAfter: wait}
	}
	return nil
}

// account counts a request that has ended: whether its key was new, and the
// bytes that were stored. The caller holds the lock.
func (q *Quota) account(a *allowance, isNew bool, stored int) {
	if !isNew && stored == 0 {
		return
	}
	now := time.Now()
	if isNew {
		a.keys.rise(now, 1, q.limits.keysPerSec())
	}
	if stored > 0 {
		keep := time.Duration(q.keep.Load())
		a.share.stored.rise(now, stored, q.limits.TenantStored, keep)
		q.usage.stored.rise(now, stored, q.limits.Stored, keep)
	}
}

// allowance returns the tenant's allowance. An allowance that is in use is never dropped.
func (q *Quota) allowance(tenant string) *allowance {
	if a := q.byTenant[tenant]; a != nil {
		return a
	}
	if isSweepDue(len(q.byTenant), q.sweepAt, q.swept) {
		q.dropIdle()
	}
	if len(q.byTenant) >= maxTenants {
		return &q.others
	}
	a := &allowance{share: q.usage.share(tenant, q.limits.TenantStored)}
	q.byTenant[tenant] = a
	return a
}

func (q *Quota) dropIdle() {
	q.swept = time.Now()
	for tenant, a := range q.byTenant {
		if a.keys.fall(q.swept, q.limits.keysPerSec()); a.inFlight == 0 && a.keys.high == 0 {
			a.share.refs--
			delete(q.byTenant, tenant)
		}
	}
	q.sweepAt = 2 * len(q.byTenant)
}
