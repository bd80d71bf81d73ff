package httponce

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// defaults is a Config's quota.
func defaults(c Config) *quota {
	c.Tenant = SingleTenant
	return newQuota(new(Usage), c.withDefaults("Wrap"))
}

func TestAQuotasMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := defaults(Config{MaxNewKeys: 60, MaxInFlight: 10})
		enter := func(tenant string) bool {
			c := &call{scratch: new(callBuffers), stored: 1}
			_, refused := q.enter(c, tenant, 0, 0)
			if refused == nil {
				q.release(c, true)
			}
			return refused == nil
		}
		for i := range 2 * maxTenants {
			enter(strconv.Itoa(i))
		}
		if len(q.byTenant) != maxTenants || len(q.usage.tenants) != maxTenants {
			t.Errorf("%d allowances, %d shares", len(q.byTenant), len(q.usage.tenants))
		}
		if enter("one too many") {
			t.Error("a tenant for whom there is no room does not share what is left to the others")
		}
		if !enter("1") {
			t.Error("a tenant with an allowance of its own shares the others'")
		}
		time.Sleep(time.Minute)
		if !enter("one too many") || len(q.byTenant) != 1 || len(q.usage.tenants) != 1 {
			t.Errorf("%d allowances and %d shares after all had time to fill up", len(q.byTenant), len(q.usage.tenants))
		}
	})
}

func TestIdleTenantsAreForgottenWhenThereAreMany(t *testing.T) {
	q := defaults(Config{MaxNewKeys: 2, MaxInFlight: 2})
	for i := range 10 * fewTenants {
		c := &call{scratch: new(callBuffers)}
		_, _ = q.enter(c, strconv.Itoa(i), 1, 1)
		q.release(c, false)
	}
	if n := len(q.byTenant); n > 2*fewTenants {
		t.Errorf("%d allowances", n)
	}
	if n := len(q.usage.tenants); n > 4*fewTenants {
		t.Errorf("%d shares", n)
	}
}
