package storetest

import (
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

var attemptRules = slices.Concat([]rule{
	{"a failed command is given to a claim that retries", func(t *storeTest) {
		t.taken(failed("no stock"), onlyonce.Claim{RetryFailed: true})
	}},
	{"an unknown outcome is given to a claim that takes it", func(t *storeTest) {
		t.taken(unknown("no answer"), onlyonce.Claim{TakeUnknown: true})
	}},
	{"a lapsed lease is given to a claim that takes it", func(t *storeTest) {
		t.taken(onlyonce.Settlement{}, onlyonce.Claim{TakeUnknown: true})
	}},
	{"an unknown outcome that is kept for good is given to a claim that takes it", func(t *storeTest) {
		t.taken(keeping(unknown("no answer"), 0), onlyonce.Claim{TakeUnknown: true})
	}},
	{"a failed command is kept from a claim that takes only unknown ones", func(t *storeTest) {
		t.kept(failed("no stock"), onlyonce.Claim{TakeUnknown: true})
	}},
	{"an unknown outcome is kept from a claim that only retries failures", func(t *storeTest) {
		t.kept(unknown("no answer"), onlyonce.Claim{RetryFailed: true})
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
		for n, end := range []onlyonce.Settlement{failed("no stock"), {}, unknown("no answer"), {}, failed("no stock")} {
			t.lose(t.lookup(c.ID), end)
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
	r := stand.reach(t, claimOf("k"))
	switch processing := r.State == onlyonce.StateProcessing; {
	case processing != r.SettledAt.IsZero():
		t.Errorf("settled at %v in state %s", r.SettledAt, r.State)
	case !processing && precedes(r.SettledAt, r.CreatedAt):
		t.Errorf("settled at %v, before it was created at %v", r.SettledAt, r.CreatedAt)
	}
}))

// lose ends the attempt of r: as s says, or by letting its lease lapse.
func (t *storeTest) lose(r onlyonce.Record, s onlyonce.Settlement) {
	t.Helper()
	if s.State == "" {
		t.awaitLapse(holdOf(r))
		return
	}
	t.settle(holdOf(r), s)
}

// taken wants a command that was lost as s says to be given to a claim with
// these flags, as the next attempt at the same command, which has no result yet.
func (t *storeTest) taken(s onlyonce.Settlement, flags onlyonce.Claim) {
	t.Helper()
	first := claimOf("k")
	was := t.mustClaim(first)
	steps := map[string][]byte{"charge": []byte("ch_1")}
	t.renew(holdOf(was), long, steps)
	if s.State != "" {
		s.Result = completed("what the attempt said").Result
	}
	t.lose(was, s)

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
	t.same(want, r)
	t.same(want, t.lookup(first.ID))
}

// kept wants a command that was lost as s says to stay as it is for a claim with
// these flags.
func (t *storeTest) kept(s onlyonce.Settlement, flags onlyonce.Claim) {
	t.Helper()
	c := claimOf("k")
	t.lose(t.mustClaim(c), s)
	c = newCaller(c)
	c.RetryFailed, c.TakeUnknown = flags.RetryFailed, flags.TakeUnknown
	t.mustReject(c, t.snap(c.ID))
}
