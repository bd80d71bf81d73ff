// Package resources counts the resources of a process that requests use: the places of
// concurrent requests, the memory of their bodies and responses, new keys and
// stored bytes. It holds each handler's requests to the limits of its Quota,
// divides them among tenants, lets requests for which there is no memory
// wait for a moment, and ends the transfers of slow clients that keep others
// waiting. It does not depend on the content of requests.
package resources

import (
	"sync"
	"time"
)

const (
	// maxTenants bounds the memory of a Quota and of a Usage: that many tenants
	// can be active at a time and be counted separately.
	maxTenants = 1 << 16
	// fewTenants is the number of tenants up to which idle ones are not
	// searched for.
	fewTenants = 1 << 10
	// forgettable is how many stored bytes of a tenant may be forgotten to make
	// room for another tenant. What all tenants have stored is counted
	// separately.
	forgettable = 64 << 20
)

// A Usage counts the resources that the requests of several handlers use together. The zero
// Usage is ready to use.
type Usage struct {
	mu        sync.Mutex
	requests  int
	bodies    pool
	responses pool // takes nothing from bodies
	stored    stored
	replays   replays
	tenants   map[string]*share
	others    share     // of the tenants for which there is no room
	sweepAt   int       // the number of tenants at which idle ones are dropped
	swept     time.Time // when they last were
}

// Load returns how many requests with a tenant are being served, and how many
// bytes of bodies and responses are in memory.
func (u *Usage) Load() (requests int, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.requests, u.bodies.held + u.responses.held
}

// A share is one tenant's part of a Usage.
type share struct {
	refs      int // the number of allowances that have it
	bodies    part
	responses part
	stored    stored
}

// share returns the share of a tenant, which may store up to limit bytes. The caller
// holds the lock.
func (u *Usage) share(tenant string, limit int64) *share {
	s := u.tenants[tenant]
	if s == nil {
		if isSweepDue(len(u.tenants), u.sweepAt, u.swept) {
			u.dropIdle(limit)
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

// isSweepDue reports whether idle tenants are to be dropped before another is
// added to n: at the number sweepAt and, where there is no room, once per second.
func isSweepDue(n, sweepAt int, swept time.Time) bool {
	return n >= max(sweepAt, fewTenants) && n < maxTenants || n >= maxTenants && time.Since(swept) >= time.Second
}

func (u *Usage) dropIdle(limit int64) {
	now := time.Now()
	u.swept = now
	for tenant, s := range u.tenants {
		if high := s.stored.fall(now, limit); s.refs == 0 && s.bodies.held == 0 && s.responses.held == 0 && high <= forgettable {
			delete(u.tenants, tenant)
		}
	}
	u.sweepAt = 2 * len(u.tenants)
}
