package storetest

import (
	"context"
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

var waitRules = []rule{
	{"a waiter for a command hears of its end", func(t *storeTest) {
		t.wakes(func(h onlyonce.Hold) error { return t.store.Settle(t.ctx, h, keeping(completed("made"), poll)) })
	}},
	{"a waiter for a command hears of its release", func(t *storeTest) {
		t.wakes(func(h onlyonce.Hold) error { return t.store.Settle(t.ctx, h, onlyonce.Settlement{}) })
	}},
	{"a wait ends with its context", func(t *storeTest) {
		c := claimOf("k")
		t.mustClaim(c)
		ctx, cancel := context.WithCancel(t.ctx)
		ended := make(chan error, 1)
		go func() { ended <- t.store.(onlyonce.Waiter).Wait(ctx, c.ID) }()
		cancel()
		select {
		case <-ended:
		case <-t.ctx.Done():
			t.Error("the wait did not end")
		}
	}},
}

// wakes lets somebody wait while the command is claimed and ended again and
// again, for nobody can tell when a wait has begun, and wants the wait to end.
func (t *storeTest) wakes(end func(onlyonce.Hold) error) {
	t.Helper()
	woken := make(chan error, 1)
	go func() { woken <- t.store.(onlyonce.Waiter).Wait(t.ctx, idOf("k")) }()
	t.until("the wait ends", func() bool {
		r := t.claim(claimOf("k"))
		if err := end(holdOf(r)); err != nil && !errors.Is(err, onlyonce.ErrLost) {
			t.Fatalf("settle: %v", err)
		}
		select {
		case err := <-woken:
			if err != nil {
				t.Errorf("wait: %v", err)
			}
			return true
		default:
			return false
		}
	})
}
