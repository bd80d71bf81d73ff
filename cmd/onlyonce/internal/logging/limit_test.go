package logging

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit_AMessageIsLoggedOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {0, false}, {10*time.Second - 1, false}, {1, true}, {9 * time.Second, false}, {time.Hour, true}} {
			if time.Sleep(c.after); l.Allow() != c.want {
				t.Errorf("%v later: %v, want %v", c.after, !c.want, c.want)
			}
		}
	})
}

func TestLimits_OfEveryCauseSomeAreLoggedAndTheRestIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limits
		count := func(n int, text func(int) string) (logged, left int) {
			for i := range n {
				if more, ok := l.Allow("POST /orders", text(i)); ok {
					logged, left = logged+1, left+more
				}
			}
			return logged, left
		}
		flood := func(i int) string { return fmt.Sprintf("read tcp 127.0.0.1:%d: reset", i) }
		other := func(int) string { return "the upstream is away" }
		if logged, left := count(1000, flood); logged != 10 || left != 0 {
			t.Errorf("of 1000, %d are logged, and %d are told as left out", logged, left)
		}
		if logged, _ := count(3, other); logged != 3 {
			t.Errorf("of 3 with another cause, %d are logged", logged)
		}
		time.Sleep(limitEvery)
		if logged, left := count(1, flood); logged != 1 || left != 990 {
			t.Errorf("ten seconds later, %d are logged, and %d are told as left out", logged, left)
		}
		if logged, _ := count(1_000_000, func(i int) string { return string([]rune{rune(0x4e00 + i%1000), rune(0x4e00 + i/1000)}) }); logged > 10*(mostCauses+1) {
			t.Errorf("of a million with invented causes, %d are logged", logged)
		}
		if n := len(l.causes); n > mostCauses+1 {
			t.Errorf("%d causes are remembered", n)
		}
	})
}
