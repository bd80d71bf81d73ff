package httponce

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestTheTenantsOfASupersededHandlerAreForgotten covers the reloads of a proxy:
// its Usage goes on, and its handlers are made anew.
func TestTheTenantsOfASupersededHandlerAreForgotten(t *testing.T) {
	u := new(Usage)
	cfg := Config{MaxInFlight: 1, MaxNewKeys: 1, MaxMemory: 1 << 20, MaxTenantMemory: 1 << 20, MaxStored: 1 << 20, MaxTenantStored: 1 << 20}
	use := func(q *quota, tenant string) *allowance {
		c := &call{scratch: new(callBuffers)}
		_, refused := q.enter(c, tenant, 1, 1)
		if refused != nil {
			t.Fatal(refused)
		}
		q.release(c, true)
		return c.allowed
	}
	for reload := range 2 {
		q := newQuota(u, cfg)
		for i := range maxTenants / 2 {
			use(q, fmt.Sprint(reload, " ", i))
		}
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		u.mu.Lock()
		u.swept = time.Time{} // as after a second
		u.mu.Unlock()
		if a := use(newQuota(u, cfg), "new"); a.share != &u.others {
			return
		}
		if time.Now().After(until) {
			t.Fatal("a new tenant shares its limits with others, although nobody else is there")
		}
	}
}
