package storetest

import (
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var leaseRules = slices.Concat([]rule{
	{"a lease runs out by itself", func(t *storeTest) {
		c := claimOf("k")
		c.Lease = short
		r := t.mustClaim(c)
		t.until("the lease lapses", func() bool { return t.lookup(c.ID).LeaseLeft <= 0 })
		t.same(r, t.lookup(c.ID))
	}},
	{"a renewal makes the lease end a full lease from now", func(t *storeTest) {
		c := claimOf("k")
		c.Lease = 10 * long
		h := holdOf(t.mustClaim(c))
		for _, lease := range []time.Duration{time.Hour, long, 24 * time.Hour} {
			t.renew(h, lease, nil)
			t.sameEnd("LeaseLeft", lease, t.lookup(c.ID).LeaseLeft, 0)
		}
	}},
	{"a renewal changes nothing but the lease", func(t *storeTest) {
		r := t.mustClaim(claimOf("k"))
		t.renew(holdOf(r), time.Hour, nil)
		t.same(r, t.lookup(r.ID))
	}},
	{"a renewed lease keeps the command from others", func(t *storeTest) {
		c := claimOf("k")
		c.Lease = short
		t.renew(holdOf(t.mustClaim(c)), long, nil)
		// A command that is claimed later with the old lease tells when that has ended.
		later := claimOf("later")
		later.Lease = short
		t.mustClaim(later)
		t.until("the old lease would have lapsed", func() bool { return t.lookup(later.ID).LeaseLeft <= 0 })
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a lapsed lease can be renewed while nobody took over", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.renew(holdOf(r), long, map[string][]byte{"late": []byte("but fine")})
		if left := t.lookup(c.ID).LeaseLeft; left <= 0 {
			t.Errorf("LeaseLeft is %v after the renewal", left)
		}
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a lapsed lease can be settled while nobody took over", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.settle(holdOf(r), completed("late but fine"))
		if got := t.lookup(c.ID); string(got.Result.Body) != "late but fine" || got.State != onlyonce.StateCompleted {
			t.Errorf("the record is %s with %q", describe(got), got.Result.Body)
		}
	}},
	{"a lapsed lease can be released while nobody took over", func(t *storeTest) {
		c := claimOf("k")
		t.settle(holdOf(t.awaitLapse(holdOf(t.mustClaim(c)))), onlyonce.Settlement{})
		t.mustBeAbsent(c.ID)
	}},
	{"a lease that was taken over is lost", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.mustClaim(greedy(c))
		t.lost(holdOf(r))
	}},
	{"a lease that was taken over and settled is lost", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.complete(greedy(c), completed("by the second"))
		t.lost(holdOf(r))
	}},
	{"a lease that was taken over and released is lost", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
		t.settle(holdOf(t.mustClaim(greedy(c))), onlyonce.Settlement{})
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, h, completed("too late")))
		t.mustBeAbsent(c.ID)
	}},
	{"a lease whose command was released and claimed anew is lost", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.settle(h, onlyonce.Settlement{})
		t.mustClaim(newCaller(c))
		t.lost(h)
	}},
	{"nobody holds a command that is not there", func(t *storeTest) {
		h := onlyonce.Hold{ID: idOf("k"), Owner: newOwner(), Fence: 1}
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, h, completed("made")))
		t.wantErr(onlyonce.ErrLost, "release", t.store.Settle(t.ctx, h, onlyonce.Settlement{}))
		t.mustBeAbsent(h.ID)
	}},
}, inEvery("another owner or fence renews and settles nothing when the command is ", func(t *storeTest, stand recordState) {
	r := stand.reach(t, claimOf("k"))
	another := holdOf(r)
	another.Owner = newOwner()
	t.lost(another)
	for _, fence := range []int64{r.Fence - 1, r.Fence + 1, 0, -r.Fence} {
		h := holdOf(r)
		h.Fence = fence
		t.lost(h)
	}
}))

// lost wants a hold to be rejected everything, and to change nothing.
func (t *storeTest) lost(h onlyonce.Hold) {
	t.Helper()
	was := t.snap(h.ID)
	t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, time.Hour, map[string][]byte{"lost": []byte("step")}))
	for _, s := range []onlyonce.Settlement{completed("too late"), failed("too late"), unknown("too late"), {}} {
		t.wantErr(onlyonce.ErrLost, "settle as "+string(s.State), t.store.Settle(t.ctx, h, s))
	}
	t.unchanged(was)
}
