package storetest

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

var fenceRules = []rule{
	{"a fence is not below the store's clock in microseconds", func(t *trial) {
		r := t.given(claimOf("k"))
		if made := r.CreatedAt.UnixMicro(); r.Fence < made-1000 {
			t.Errorf("the fence is %d, the record was created at %d", r.Fence, made)
		}
	}},
	{"a fence grows with every attempt", func(t *trial) {
		c := claimOf("k")
		last := t.given(c)
		for _, end := range []onlyonce.Settlement{{}, failed("no stock"), unknown("no answer"), {}} {
			t.lose(last, end)
			last = t.above(last.Fence, eager(c))
		}
	}},
	{"a fence grows over a release", func(t *trial) {
		c := claimOf("k")
		r := t.given(c)
		t.settle(holdOf(r), onlyonce.Settlement{})
		t.above(r.Fence, again(c))
	}},
	{"a fence grows over releases in a tight loop", func(t *trial) {
		c := claimOf("k")
		last := int64(0)
		for range 200 {
			c = again(c)
			r := t.above(last, c)
			last = r.Fence
			t.settle(holdOf(r), onlyonce.Settlement{})
		}
	}},
	{"a fence grows over releases that race", func(t *trial) {
		var mu sync.Mutex
		last := int64(0)
		together(8, func(int) {
			for range 40 {
				c := again(claimOf("k"))
				r, err := t.store.Claim(t.ctx, c)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if r.Owner != c.Owner {
					continue
				}
				mu.Lock()
				if r.Fence <= last {
					t.Errorf("the fence went from %d to %d", last, r.Fence)
				}
				last = max(last, r.Fence)
				mu.Unlock()
				if err := t.store.Settle(t.ctx, holdOf(r), onlyonce.Settlement{}); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}},
	{"a fence grows over the end of a record", func(t *trial) {
		c := claimOf("k")
		r := t.given(c)
		t.settle(holdOf(r), keeping(completed("made"), short))
		t.gone(c.ID)
		t.above(r.Fence, again(c))
	}},
	{"a fence grows over the end of a record that was attempted often", func(t *trial) {
		c := claimOf("k")
		r := t.given(c)
		for range 20 {
			t.settle(holdOf(r), failed("no stock"))
			c = eager(c)
			r = t.above(r.Fence, c)
		}
		t.settle(holdOf(r), keeping(completed("made"), short))
		t.gone(c.ID)
		t.above(r.Fence, again(c))
	}},
	{"a fence grows over ends in a tight loop", func(t *trial) {
		c := claimOf("k")
		last := int64(0)
		for range 20 {
			c = again(c)
			r := t.above(last, c)
			last = r.Fence
			t.settle(holdOf(r), keeping(completed("made"), poll))
			t.gone(c.ID)
		}
	}},
}

// above claims, and wants a fence above last.
func (t *trial) above(last int64, c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r := t.given(c)
	if r.Fence <= last {
		t.Fatalf("the fence went from %d to %d", last, r.Fence)
	}
	return r
}
