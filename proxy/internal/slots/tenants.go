package slots

import (
	"time"

	"github.com/onlyonce-go/onlyonce/internal/shares"
)

// tenants counts the slots that the keyed requests of each tenant hold, and leaves
// some of the slots to the tenants that hold few. An upstream that responds slowly
// would otherwise be used by one tenant alone, because its requests can't be ended.
type tenants struct {
	held map[string]int

	// While only one tenant sends requests, it may hold all slots.
	latest     string
	latestSeen time.Time
	otherSeen  time.Time // when one that is not the latest was last seen
}

// shareFor is how long a tenant leaves slots to another after the other's request.
const shareFor = time.Minute

// see notes that a request of the tenant has come.
func (t *tenants) see(tenant string) {
	if tenant == "" {
		return
	}
	if tenant != t.latest {
		t.latest, t.otherSeen = tenant, t.latestSeen
	}
	t.latestSeen = time.Now()
}

// admit reports whether the tenant may take one of so many free slots.
func (t *tenants) admit(tenant string, free int) bool {
	return tenant == "" || shares.MayTake(t.held[tenant], free) || t.latestSeen.Sub(t.otherSeen) >= shareFor
}

func (t *tenants) acquire(tenant string) {
	if tenant == "" {
		return
	}
	if t.held == nil {
		t.held = make(map[string]int)
	}
	t.held[tenant]++
}

func (t *tenants) release(tenant string) {
	if tenant == "" {
		return
	}
	if t.held[tenant]--; t.held[tenant] == 0 {
		delete(t.held, tenant)
	}
}
