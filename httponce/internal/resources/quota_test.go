package resources

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// newTestQuota returns a Quota of a new Usage whose limits but these are high.
func newTestQuota(newKeys, inFlight int) *Quota {
	return NewQuota(new(Usage), Limits{
		InFlight: inFlight, NewKeys: newKeys,
		Memory: 64 << 20, TenantMemory: 32 << 20, Stored: 64 << 30, TenantStored: 16 << 30, Unread: 20 * time.Second,
	})
}

func TestQuota_AQuotasMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQuota(60, 10)
		enter := func(tenant string) bool {
			r := new(Request)
			_, rejected := q.enter(r, tenant, 0, 0)
			if rejected == nil {
				r.Release(true, 1)
			}
			return rejected == nil
		}
		for i := range 2 * maxTenants {
			enter(strconv.Itoa(i))
		}
		if len(q.byTenant) != maxTenants || len(q.usage.tenants) != maxTenants {
			t.Errorf("%d allowances, %d shares", len(q.byTenant), len(q.usage.tenants))
		}
		if enter("one too many") {
			t.Error("a tenant for whom there is no room does not use the others' share")
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

func TestQuota_IdleTenantsAreForgottenWhenThereAreMany(t *testing.T) {
	q := newTestQuota(2, 2)
	for i := range 10 * fewTenants {
		r := new(Request)
		_, _ = q.enter(r, strconv.Itoa(i), 1, 1)
		r.Release(false, 0)
	}
	if n := len(q.byTenant); n > 2*fewTenants {
		t.Errorf("%d allowances", n)
	}
	if n := len(q.usage.tenants); n > 4*fewTenants {
		t.Errorf("%d shares", n)
	}
}

func TestStored_WithManyKeepsNothingIsForgottenEarly(t *testing.T) {
	var s stored
	now := time.Now()
	const limit = 1000
	for i := range 20 {
		s.rise(now, 1, limit, time.Duration(i+1)*time.Hour)
	}
	if n, sum := len(s.levels), s.sum(); n != mostKeeps || sum != 20 {
		t.Errorf("%d levels hold %v", n, sum)
	}
	var before time.Duration
	for _, l := range s.levels {
		if l.keep <= before {
			t.Errorf("a keep of %v follows one of %v", l.keep, before)
		}
		before = l.keep
	}
	if before != 20*time.Hour {
		t.Errorf("the longest keep is %v", before)
	}
	if sum := s.fall(now.Add(20*time.Hour), limit); sum != 0 || len(s.levels) != 0 {
		t.Errorf("in the end %d levels hold %v", len(s.levels), sum)
	}
}
