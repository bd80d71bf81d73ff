package slots

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// names are those of n requests from one address.
func names(first, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("10.0.0.1:%d", first+i))
	}
	return list
}

func TestTenants_ATenantAloneMayHoldEverySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 16)
		for _, name := range names(1, 16) {
			l.askAs("acme", name, true)
		}
		l.want(l.got, names(1, 16)...)
	})
}

func TestTenants_ATenantLeavesSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 16)
		for _, name := range names(1, 16) {
			l.askAs("acme", name, true)
		}
		l.askAs("acme", "10.0.0.1:17", true)
		l.askAs("globex", "10.0.0.1:18", true)
		l.got = nil
		l.giveBack("10.0.0.1:1") // to another, although it came later
		l.want(l.got, "10.0.0.1:18")
		l.giveBack("10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4") // 12 of 16 are held, and it would be 13
		l.want(l.got, "10.0.0.1:18")
		l.giveBack("10.0.0.1:18") // 12 of 16
		l.want(l.got, "10.0.0.1:18")
		l.giveBack("10.0.0.1:5") // 11 of 16, and it may have 12
		l.want(l.got, "10.0.0.1:18", "10.0.0.1:17")
		for _, tenant := range []string{"globex", "globex", "initech"} {
			l.askAs(tenant, "10.0.0.1:"+tenant+fmt.Sprint(len(l.got)), true)
		}
		if len(l.got) != 5 {
			t.Errorf("others got none of the free slots: %v", l.got)
		}
		wait(2 * slotWait)
	})
}

func TestTenants_TheSlotsLeftGetFewerWithTheTenants(t *testing.T) {
	for tenants, each := range map[int]int{1: 48, 2: 28, 3: 20, 5: 12} {
		synctest.Test(t, func(t *testing.T) {
			l := newLine(t, 64)
			l.askAs("newcomer", "10.0.0.2:1", true)
			l.giveBack("10.0.0.2:1")
			for i := range 64 {
				for n := range tenants {
					l.askAs(fmt.Sprint("tenant", n), fmt.Sprintf("10.0.0.1:%d", n*64+i), true)
				}
			}
			for tenant, held := range l.slots.tenants.held {
				if held < each-1 || held > each {
					t.Errorf("%s, of %d, holds %d, want %d", tenant, tenants, held, each)
				}
			}
			l.got = nil
			l.askAs("newcomer", "10.0.0.2:2", true)
			l.want(l.got, "10.0.0.2:2")
			wait(2 * slotWait)
		})
	}
}

func TestTenants_AfterAMinuteATenantIsAloneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 4)
		l.askAs("globex", "10.0.0.2:1", true)
		l.giveBack("10.0.0.2:1")
		for _, name := range names(1, 4) {
			l.askAs("acme", name, true)
		}
		l.want(l.got, append([]string{"10.0.0.2:1"}, names(1, 3)...)...)
		wait(shareFor) // in which the fourth gives up
		l.askAs("acme", "10.0.0.1:5", true)
		l.want(l.got, append([]string{"10.0.0.2:1"}, append(names(1, 3), "10.0.0.1:5")...)...)
	})
}

func TestTenants_ForATenantsShareOnlyItsOwnRequestsAreEnded(t *testing.T) {
	for _, test := range []struct {
		acme, globex string // the side that their requests wait for: the client or the upstream
		status       string // that acme gets for one more request
		ended        int
	}{
		{"/long", "/works", "200", 1},
		{"/works", "/long", "503", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSlotServer(t, 8)
			fields := func(tenant string) string { return "Idempotency-Key: k\r\nTenant: " + tenant + "\r\n" }
			s.get(t, "127.0.0.3:1000", test.globex, fields("globex"))
			for range 6 {
				s.get(t, "127.0.0.2:1000", test.acme, fields("acme"))
			}
			wait(mostPatience)
			if got := s.status(t, "127.0.0.2:1000", fields("acme")); got != test.status || s.count() != test.ended {
				t.Errorf("acme waits for %s, globex for %s: another request of acme gets %s, want %s; ended are %v", test.acme, test.globex, got, test.status, s.ended)
			}
		})
	}
}
