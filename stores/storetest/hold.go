package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var attemptRules = slices.Concat([]rule{
	{"a claim that retries gets a failed command", func(t *storeTest) {
		t.mustTakeOver(failed("no stock"), onlyonce.Claim{RetryFailed: true})
	}},
	{"a claim that takes unknown outcomes gets one", func(t *storeTest) {
		t.mustTakeOver(unknown("no response"), onlyonce.Claim{TakeUnknown: true})
	}},
	{"a claim that takes unknown outcomes gets a lapsed lease", func(t *storeTest) {
		t.mustTakeOver(onlyonce.Settlement{}, onlyonce.Claim{TakeUnknown: true})
	}},
	{"a claim that takes unknown outcomes gets one that is kept forever", func(t *storeTest) {
		t.mustTakeOver(keeping(unknown("no response"), 0), onlyonce.Claim{TakeUnknown: true})
	}},
	{"a failed command is kept from a claim that takes only unknown ones", func(t *storeTest) {
		t.kept(failed("no stock"), onlyonce.Claim{TakeUnknown: true})
	}},
	{"an unknown outcome is kept from a claim that only retries failures", func(t *storeTest) {
		t.kept(unknown("no response"), onlyonce.Claim{RetryFailed: true})
	}},
	{"a lapsed lease is kept from a claim that only retries failures", func(t *storeTest) {
		t.kept(onlyonce.Settlement{}, onlyonce.Claim{RetryFailed: true})
	}},
	{"a completed command is kept from every claim", func(t *storeTest) {
		t.kept(completed("made"), onlyonce.Claim{RetryFailed: true, TakeUnknown: true})
	}},
	{"a failure for good is kept from every claim", func(t *storeTest) {
		t.kept(failedForGood("no such article"), onlyonce.Claim{RetryFailed: true, TakeUnknown: true})
	}},
	{"a command that was taken over is alive again", func(t *storeTest) {
		c := claimOf("k")
		t.awaitLapse(holdOf(t.mustClaim(c)))
		t.mustClaim(greedy(c))
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"attempts are counted over every way to lose a command", func(t *storeTest) {
		c := claimOf("k")
		first := t.mustClaim(c)
		for n, end := range []onlyonce.Settlement{failed("no stock"), {}, unknown("no response"), {}, failed("no stock")} {
			t.endAttempt(t.lookup(c.ID), end)
			r := t.mustClaim(greedy(c))
			if r.Attempt != n+2 {
				t.Errorf("attempt %d, want %d", r.Attempt, n+2)
			}
			if !r.CreatedAt.Equal(first.CreatedAt) {
				t.Errorf("attempt %d was created at %v, want the first attempt's %v", r.Attempt, r.CreatedAt, first.CreatedAt)
			}
		}
	}},
	{"a retry that fails tells its own error", func(t *storeTest) {
		c := claimOf("k")
		t.complete(c, failed("no stock"))
		if r := t.complete(greedy(c), failed("no money")); r.Error != "no money" || r.Attempt != 2 {
			t.Errorf("attempt %d has the error %q, want 2 and no money", r.Attempt, r.Error)
		}
	}},
	{"a retry that completes leaves nothing of the failed attempt's result", func(t *storeTest) {
		c := claimOf("k")
		bad := failed("no stock")
		bad.Result = completed("out of stock").Result
		t.complete(c, bad)
		r := t.complete(greedy(c), onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: long})
		t.sameResult(onlyonce.Result{}, r.Result)
	}},
	{"a failure for good after a retry stays", func(t *storeTest) {
		c := claimOf("k")
		t.complete(c, failed("no stock"))
		if r := t.complete(greedy(c), failedForGood("sold out")); !r.Final {
			t.Errorf("the record is not final: %s", describe(r))
		}
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
}, inEvery("SettledAt is set once a command is settled, and only then: ", func(t *storeTest, stand recordState) {
	r := stand.enter(t, claimOf("k"))
	switch processing := r.State == onlyonce.StateProcessing; {
	case processing != r.SettledAt.IsZero():
		t.Errorf("settled at %v in state %s", r.SettledAt, r.State)
	case !processing && precedes(r.SettledAt, r.CreatedAt):
		t.Errorf("settled at %v, before it was created at %v", r.SettledAt, r.CreatedAt)
	}
}))

// endAttempt ends the attempt of r with s, or by letting its lease lapse.
func (t *storeTest) endAttempt(r onlyonce.Record, s onlyonce.Settlement) {
	t.Helper()
	if s.State == "" {
		t.awaitLapse(holdOf(r))
		return
	}
	t.settle(holdOf(r), s)
}

// mustTakeOver wants a claim with these flags to take over a command that was lost with s, as
// the next attempt at the same command, which has no result yet.
func (t *storeTest) mustTakeOver(s onlyonce.Settlement, flags onlyonce.Claim) {
	t.Helper()
	first := claimOf("k")
	was := t.mustClaim(first)
	steps := map[string][]byte{"charge": []byte("ch_1")}
	t.renew(holdOf(was), long, steps)
	if s.State != "" {
		s.Result = completed("what the attempt said").Result
	}
	t.endAttempt(was, s)

	next := newCaller(first)
	next.RetryFailed, next.TakeUnknown = flags.RetryFailed, flags.TakeUnknown
	r := t.mustClaim(next)
	if r.Fence <= was.Fence {
		t.Errorf("the fence went from %d to %d", was.Fence, r.Fence)
	}
	t.sameEnd("LeaseLeft", next.Lease, r.LeaseLeft, 0)
	want := onlyonce.Record{
		ID: first.ID, State: onlyonce.StateProcessing, Fingerprint: first.Fingerprint, Owner: next.Owner,
		Attempt: 2, Fence: r.Fence, Error: s.Error, Steps: steps, CreatedAt: was.CreatedAt,
	}
	t.wantSame(want, r)
	t.wantSame(want, t.lookup(first.ID))
}

// kept wants a claim with these flags to leave a command that was lost with s unchanged.
func (t *storeTest) kept(s onlyonce.Settlement, flags onlyonce.Claim) {
	t.Helper()
	c := claimOf("k")
	t.endAttempt(t.mustClaim(c), s)
	c = newCaller(c)
	c.RetryFailed, c.TakeUnknown = flags.RetryFailed, flags.TakeUnknown
	t.mustReject(c, t.snap(c.ID))
}

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
		for _, end := range []onlyonce.Settlement{{}, failed("no stock"), unknown("no response"), {}} {
			t.endAttempt(last, end)
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

var leaseRules = slices.Concat([]rule{
	{"a lease runs out by itself", func(t *storeTest) {
		c := claimOf("k")
		c.Lease = short
		r := t.mustClaim(c)
		t.until("the lease lapses", func() bool { return t.lookup(c.ID).LeaseLeft <= 0 })
		t.wantSame(r, t.lookup(c.ID))
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
		t.wantSame(r, t.lookup(r.ID))
	}},
	{"a renewed lease keeps the command from others", func(t *storeTest) {
		c := claimOf("k")
		c.Lease = short
		t.renew(holdOf(t.mustClaim(c)), long, nil)
		// A command that is claimed later with the old lease shows when that lease has ended.
		later := claimOf("later")
		later.Lease = short
		t.mustClaim(later)
		t.until("the old lease would have lapsed", func() bool { return t.lookup(later.ID).LeaseLeft <= 0 })
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a lapsed lease can be renewed unless another claim took over", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.renew(holdOf(r), long, map[string][]byte{"late": []byte("but fine")})
		if left := t.lookup(c.ID).LeaseLeft; left <= 0 {
			t.Errorf("LeaseLeft is %v after the renewal", left)
		}
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a lapsed lease can be settled unless another claim took over", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.settle(holdOf(r), completed("late but fine"))
		if got := t.lookup(c.ID); string(got.Result.Body) != "late but fine" || got.State != onlyonce.StateCompleted {
			t.Errorf("the record is %s with %q", describe(got), got.Result.Body)
		}
	}},
	{"a lapsed lease can be released unless another claim took over", func(t *storeTest) {
		c := claimOf("k")
		t.settle(holdOf(t.awaitLapse(holdOf(t.mustClaim(c)))), onlyonce.Settlement{})
		t.mustBeAbsent(c.ID)
	}},
	{"a lease that was taken over is lost", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.mustClaim(greedy(c))
		t.mustBeLost(holdOf(r))
	}},
	{"a lease that was taken over and settled is lost", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.complete(greedy(c), completed("by the second"))
		t.mustBeLost(holdOf(r))
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
		t.mustBeLost(h)
	}},
	{"no attempt holds a command that does not exist", func(t *storeTest) {
		h := onlyonce.Hold{ID: idOf("k"), Owner: newOwner(), Fence: 1}
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, h, completed("made")))
		t.wantErr(onlyonce.ErrLost, "release", t.store.Settle(t.ctx, h, onlyonce.Settlement{}))
		t.mustBeAbsent(h.ID)
	}},
}, inEvery("another owner or fence renews and settles nothing when the command is ", func(t *storeTest, stand recordState) {
	r := stand.enter(t, claimOf("k"))
	another := holdOf(r)
	another.Owner = newOwner()
	t.mustBeLost(another)
	for _, fence := range []int64{r.Fence - 1, r.Fence + 1, 0, -r.Fence} {
		h := holdOf(r)
		h.Fence = fence
		t.mustBeLost(h)
	}
}))

// mustBeLost wants every call with a hold to be rejected, and to change nothing.
func (t *storeTest) mustBeLost(h onlyonce.Hold) {
	t.Helper()
	was := t.snap(h.ID)
	t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, time.Hour, map[string][]byte{"lost": []byte("step")}))
	for _, s := range []onlyonce.Settlement{completed("too late"), failed("too late"), unknown("too late"), {}} {
		t.wantErr(onlyonce.ErrLost, "settle as "+string(s.State), t.store.Settle(t.ctx, h, s))
	}
	t.unchanged(was)
}
