package logging

import (
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
