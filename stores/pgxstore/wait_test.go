package pgxstore

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestListener_LooksOncePerSecondWhetherAnybodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newListener(nil, commandsChannel, commandsLock)
		for second := range 3 {
			if !e.notify("name").checks {
				t.Errorf("in second %d it does not look", second)
			}
			if e.notify("name").checks {
				t.Errorf("in second %d it looks twice", second)
			}
			time.Sleep(checkEvery)
		}
	})
}
