package transact

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestRerun_APauseIsAsLongAsWhatItIsToLetPass(t *testing.T) {
	for _, c := range []struct {
		n    int
		took time.Duration
		want time.Duration
	}{
		{1, 0, 2 * time.Millisecond},
		{1, 50 * time.Millisecond, 100 * time.Millisecond},
		{3, 50 * time.Millisecond, 400 * time.Millisecond},
		{9, time.Millisecond, 512 * time.Millisecond},
		{9, time.Minute, longestPause},
		{1 << 20, time.Hour, longestPause},
	} {
		if got := AfterRun(c.n, c.took); got != c.want {
			t.Errorf("after %d runs of %v: up to %v, want %v", c.n, c.took, got, c.want)
		}
	}
}

func TestRerun_APauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		if !Pause(ctx, time.Second) {
			t.Error("it ended before")
		}
		cancel()
		if began := time.Now(); Pause(ctx, time.Hour) && time.Since(began) > 0 {
			t.Error("it did not end")
		}
	})
}
