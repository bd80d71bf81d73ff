package resources

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestUsageForget_TheTenantsOfASupersededHandlerAreForgotten covers the reloads of a proxy:
// its Usage goes on, and its handlers are recreated.
func TestUsageForget_TheTenantsOfASupersededHandlerAreForgotten(t *testing.T) {
	u := new(Usage)
	limits := Limits{InFlight: 1, NewKeys: 1, Memory: 1 << 20, TenantMemory: 1 << 20, Stored: 1 << 20, TenantStored: 1 << 20}
	use := func(q *Quota, tenant string) *allowance {
		r := new(Request)
		_, rejected := q.enter(r, tenant, 1, 1)
		if rejected != nil {
			t.Fatal(rejected)
		}
		a := r.allowed
		r.Release(true, 0)
		return a
	}
	for reload := range 2 {
		q := NewQuota(u, limits)
		for i := range maxTenants / 2 {
			use(q, fmt.Sprint(reload, " ", i))
		}
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		u.mu.Lock()
		u.swept = time.Time{} // as after a second
		u.mu.Unlock()
		if a := use(NewQuota(u, limits), "new"); a.share != &u.others {
			return
		}
		if time.Now().After(until) {
			t.Fatal("a new tenant shares its limits with others, although nobody else is there")
		}
	}
}
