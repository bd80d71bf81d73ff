package shares

import "testing"

func TestMayTake_EachTenantLeavesAThirdOfWhatItHolds(t *testing.T) {
	const places = 84
	for tenants, each := range map[int]int{1: places * 3 / 4, 2: places * 3 / 7, 6: places * 3 / 19} {
		held, free := make([]int, tenants), places
		for took := true; took; {
			took = false
			for i := range held {
				if MayTake(held[i], free) {
					held[i]++
					free--
					took = true
				}
			}
		}
		for _, n := range held {
			if n < each || n > each+1 {
				t.Errorf("%d tenants hold %d of %d places, want %d each", tenants, held, places, each)
			}
		}
		if free == 0 || !MayTake(0, free) {
			t.Errorf("%d tenants leave nothing to another", tenants)
		}
	}
}

func TestShares_TheDefaultsOfATenant(t *testing.T) {
	if long, memory, stored := Long(1000), Memory(1000), Stored(1001); long != 750 || memory != 500 || stored != 251 {
		t.Errorf("the shares of 1000 are %d, %d and %d", long, memory, stored)
	}
	if Long(1) != 1 || Stored(1) != 1 {
		t.Error("a byte has no share")
	}
}
