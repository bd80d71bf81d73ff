//go:build !race

package caddyonce

import (
	"strconv"
	"testing"
)

// A run takes a context that can be ended, a copy of the header, and hooks for the client of
// reverse_proxy. Not with the race detector, which makes a sync.Pool drop what it holds.
func TestHandler_AllocatesAtMostTwiceForAReplayAnd24TimesForARunMoreThanWrap(t *testing.T) {
	module, wrap := benched(t)
	keys := 0
	for most, key := range map[float64]func() string{
		2: func() string { return "k" },
		24: func() string {
			keys++
			return strconv.Itoa(keys)
		},
	} {
		allocations := func(send func(key string)) float64 {
			return testing.AllocsPerRun(10, func() {
				for range 100 {
					send(key())
				}
			})
		}
		if of, than := allocations(module), allocations(wrap); of > than+100*most+50 { // pools make the number vary a little
			t.Errorf("100 requests make %v allocations, and %v with Wrap: want at most %v more for each", of, than, most)
		}
	}
}
