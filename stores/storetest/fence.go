package storetest

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

var fenceRules = []rule{
	{"a fence is not below the store's clock in microseconds", func(t *storeTest) {
		r := t.mustClaim(claimOf("k"))
		if made := r.CreatedAt.UnixMicro(); r.Fence < made-1000 {
			t.Errorf("the fence is %d, the record was created at %d", r.Fence, made)
		}
	}},
	{"a fence grows with every attempt", func(t *storeTest) {
		c := claimOf("k")
		last := t.mustClaim(c)
		for _, end := range []onlyonce.Settlement{{}, failed("no stock"), unknown("no answer"), {}} {
			t.lose(last, end)
			last = t.above(last.Fence, greedy(c))
		}
	}},
	{"a fence grows over a release", func(t *storeTest) {
		c := claimOf("k")
		r := t.mustClaim(c)
		t.settle(holdOf(r), onlyonce.Settlement{})
		t.above(r.Fence, newCaller(c))
	}},
	{"a fence grows over releases in a tight loop", func(t *storeTest) {
		c := claimOf("k")
		last := int64(0)
		for range 200 {
			c = newCaller(c)
			r := t.above(last, c)
			last = r.Fence
			t.settle(holdOf(r), onlyonce.Settlement{})
		}
	}},
	{"a fence grows over releases that race", func(t *storeTest) {
		var mu sync.Mutex
		last := int64(0)
		together(8, func(int) {
			for range 40 {
				c := newCaller(claimOf("k"))
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
	{"a fence grows over the end of a record", func(t *storeTest) {
		c := claimOf("k")
		r := t.mustClaim(c)
		t.settle(holdOf(r), keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.above(r.Fence, newCaller(c))
	}},
	{"a fence grows over the end of a record that was attempted often", func(t *storeTest) {
		c := claimOf("k")
		r := t.mustClaim(c)
		for range 20 {
			t.settle(holdOf(r), failed("no stock"))
			c = greedy(c)
			r = t.above(r.Fence, c)
		}
		t.settle(holdOf(r), keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.above(r.Fence, newCaller(c))
	}},
	{"a fence grows over ends in a tight loop", func(t *storeTest) {
		c := claimOf("k")
		last := int64(0)
		for range 20 {
			c = newCaller(c)
			r := t.above(last, c)
			last = r.Fence
			t.settle(holdOf(r), keeping(completed("made"), poll))
			t.awaitExpiry(c.ID)
		}
	}},
}

// above claims, and wants a fence above last.
func (t *storeTest) above(last int64, c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r := t.mustClaim(c)
	if r.Fence <= last {
		t.Fatalf("the fence went from %d to %d", last, r.Fence)
	}
	return r
}
