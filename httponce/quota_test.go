package httponce

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestAQuotasMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(Config{MaxNewKeys: 60, MaxInFlight: 10})
		enter := func(tenant string) bool {
			a, _ := q.enter(tenant)
			if a != nil {
				q.leave(tenant, a, true)
			}
			return a != nil
		}
		for i := range 2 * maxTenants {
			enter(strconv.Itoa(i))
		}
		if len(q.byTenant) != maxTenants {
			t.Errorf("%d allowances", len(q.byTenant))
		}
		if enter("one too many") {
			t.Error("a tenant for whom there is no room does not share what is left to the others")
		}
		if !enter("1") {
			t.Error("a tenant with an allowance of its own shares the others'")
		}
		time.Sleep(time.Minute)
		if !enter("one too many") || len(q.byTenant) != 1 {
			t.Errorf("%d allowances after all had time to fill up", len(q.byTenant))
		}
	})
}

func TestAnIdleTenantLeavesNothing(t *testing.T) {
	q := newQuota(Config{MaxNewKeys: 2, MaxInFlight: 2})
	for range 10 {
		a, _ := q.enter("a")
		q.leave("a", a, false)
	}
	if len(q.byTenant) != 0 {
		t.Errorf("allowances %v", q.byTenant)
	}
}
