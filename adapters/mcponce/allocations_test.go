//go:build !race

package mcponce_test

import (
	"strconv"
	"testing"
)

// A run takes a call, its admission and a hash of the tool's name, and a replay has more to read than
// Do. Not with the race detector, which makes a sync.Pool drop what it holds.
func TestMiddleware_AllocatesAtMostThreeTimesMoreThanDo(t *testing.T) {
	middleware, do := compared(t)
	keys := 0
	for most, key := range map[float64]func() string{
		1: func() string { return "k" },
		3: func() string {
			keys++
			return strconv.Itoa(keys)
		},
	} {
		allocations := func(call func(key string)) float64 {
			return testing.AllocsPerRun(10, func() {
				for range 100 {
					call(key())
				}
			})
		}
		if of, than := allocations(middleware), allocations(do); of > than+100*most+50 { // pools make the number vary a little
			t.Errorf("100 calls make %v allocations, and Do %v: want at most %v more for each", of, than, most)
		}
	}
}
