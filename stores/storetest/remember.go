package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// finals are the settlements after which no claim gets a command.
var finals = []onlyonce.Settlement{completed("made"), failedForGood("no such article")}

var rememberRules = []rule{
	{"only the ID is left of a command when the keep of its result ends", func(t *storeTest) {
		for i, s := range finals {
			c := claimOf(fmt.Sprint(i))
			c.Summary = "an order for acme"
			h := holdOf(t.mustClaim(c))
			t.renew(h, long, steps{"charge": []byte("ch_1")})
			s.Result.Keep = short
			t.settle(h, s)
			r := t.awaitForgetting(c.ID)
			t.wantSame(onlyonce.Record{
				ID: c.ID, State: onlyonce.StateRemembered, Owner: h.Owner, Attempt: 1, Fence: h.Fence, CreatedAt: r.CreatedAt, SettledAt: r.SettledAt,
			}, r)
			t.sameEnd("KeepLeft", long, r.KeepLeft, 0)
			if r.SettledAt.IsZero() || r.Result.Keep != 0 {
				t.Errorf("it was settled at %v, and its result is kept for %v", r.SettledAt, r.Result.Keep)
			}
		}
	}},
	{"no claim gets a command of which only the ID is left", func(t *storeTest) {
		for i, s := range finals {
			for _, retried := range []bool{false, true} {
				c := claimOf(fmt.Sprint(i, retried))
				if retried {
					t.complete(c, failed("no stock"))
					c = greedy(c)
				}
				t.remembered(c, s)
				was := t.snap(c.ID)
				other := greedy(c)
				other.Fingerprint = onlyonce.Fingerprint([]byte("another order"))
				for _, c := range []onlyonce.Claim{newCaller(claimOn(c.ID)), greedy(c), other, skipping(greedy(c))} {
					t.mustReject(c, was)
				}
			}
		}
	}},
	{"no claim of a crowd gets commands of which only the IDs are left", func(t *storeTest) {
		const crowd = 64 // more than any store serves one by one
		holds := make([]onlyonce.Hold, crowd)
		together(crowd, func(i int) {
			r, err := t.store.Claim(t.ctx, claimOf(fmt.Sprint(i)))
			if holds[i] = holdOf(r); err != nil {
				t.Errorf("claim: %v", err)
			}
		})
		together(crowd, func(i int) { // all were claimed before: a store may delete results when a command is claimed
			s := finals[i%len(finals)]
			s.Result.Keep = short
			if err := t.store.Settle(t.ctx, holds[i], s); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
		for _, h := range holds {
			t.awaitForgetting(h.ID)
		}
		for _, purged := range []bool{false, true} {
			if purged && lacks[onlyonce.Purger](t.store) {
				break
			}
			if purged {
				all := 0
				for n := -1; n != 0; all += n {
					n = t.purge(1000)
				}
				if all != crowd {
					t.Errorf("purged %d, want %d", all, crowd)
				}
			}
			together(crowd, func(i int) {
				c := greedy(claimOf(fmt.Sprint(i)))
				if r, err := t.store.Claim(t.ctx, c); err != nil || r.State != onlyonce.StateRemembered || r.Owner == c.Owner || r.Result.Body != nil {
					t.Errorf("the claim got %s with %q and error %v", describe(r), r.Result.Body, err)
				}
			})
		}
	}},
	{"no attempt changes a command of which only the ID is left", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.remembered(c, completed("made")))
		was := t.snap(c.ID)
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "renew with a step", t.store.Renew(t.ctx, h, long, steps{"late": []byte("step")}))
		for _, s := range []onlyonce.Settlement{completed("again"), failed("late"), unknown("late"), {}} {
			t.settle(h, s) // as after any other settlement of the hold
			other := h
			other.Owner = newOwner()
			t.wantErr(onlyonce.ErrLost, "settle by another hold", t.store.Settle(t.ctx, other, s))
		}
		t.unchanged(was)
	}},
	{"a result is there until its keep ends, and says how long that is", func(t *storeTest) {
		c, s := claimOf("k"), keeping(completed("made"), 3*long)
		s.Result.Keep = 2 * long
		r := t.complete(c, s)
		if r.State != s.State {
			t.Errorf("the record is %s", describe(r))
		}
		t.sameResult(s.Result, r.Result)
		t.sameEnd("KeepLeft", 3*long, r.KeepLeft, 0)
		t.sameEnd("Result.Keep", 2*long, r.Result.Keep, 0)
		t.until("the rest gets shorter", func() bool { return t.lookup(c.ID).Result.Keep < r.Result.Keep })
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a result without a header is kept and forgotten, too", func(t *storeTest) {
		c, s := claimOf("k"), onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: long}
		s.Result.Keep = long - time.Second
		r := t.complete(c, s)
		t.sameResult(s.Result, r.Result)
		t.sameEnd("Result.Keep", s.Result.Keep, r.Result.Keep, 0)
		s.Result.Keep = 0
		t.remembered(claimOf("other"), s)
	}},
	{"an ID is forgotten when the record's keep ends", func(t *storeTest) {
		c, s := claimOf("k"), keeping(completed("made"), 10*short)
		s.Result.Keep = short
		was := t.mustClaim(c)
		t.settle(holdOf(was), s)
		t.awaitExpiry(c.ID)
		t.asNew(c.ID)
		if r := t.lookup(c.ID); r.Fence <= was.Fence {
			t.Errorf("the fence went from %d to %d", was.Fence, r.Fence)
		}
	}},
	{"an ID can be remembered for good", func(t *storeTest) {
		c := claimOf("k")
		if r := t.remembered(c, keeping(completed("made"), onlyonce.KeepForever)); r.KeepLeft != 0 {
			t.Errorf("the record is %s", describe(r))
		}
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a purge deletes results, leaves their IDs, and counts each result once", func(t *storeTest) {
		p, ok := t.store.(onlyonce.Purger)
		if !ok {
			t.Skip("the store is not a Purger")
		}
		holds := make([]onlyonce.Hold, 7)
		for i := range holds { // all before any result expires: a store may delete it when a command is claimed
			holds[i] = holdOf(t.mustClaim(claimOf(fmt.Sprint(i))))
		}
		kept := completed("kept")
		kept.Result.Keep = long - time.Second
		t.settle(holds[0], kept)
		for _, h := range holds[1:] {
			s := completed("made")
			s.Result.Keep = short
			t.settle(h, s)
		}
		was := []snapshot{t.snap(holds[0].ID)}
		for _, h := range holds[1:] {
			was = append(was, snapshotOf(t.awaitForgetting(h.ID)))
		}
		all := 0
		for n := -1; n != 0; all += n {
			var err error
			if n, err = p.Purge(t.ctx, 4); n > 4 || err != nil {
				t.Fatalf("purged %d with error %v, over the limit of 4", n, err)
			}
		}
		if all != len(holds)-1 {
			t.Errorf("purged %d, want %d", all, len(holds)-1)
		}
		for i, h := range holds {
			t.unchanged(was[i])
			t.mustReject(greedy(claimOn(h.ID)), was[i])
		}
	}},
	{"a purge forgets the IDs in the end", func(t *storeTest) {
		if lacks[onlyonce.Purger](t.store) {
			t.Skip("the store is not a Purger")
		}
		s := keeping(completed("made"), 20*short)
		s.Result.Keep = short
		h := holdOf(t.mustClaim(claimOf("k")))
		t.settle(h, s)
		t.until("the result is deleted, or the record is", func() bool { return t.purge(1) == 1 })
		t.awaitExpiry(h.ID)
		for n := -1; n != 0; {
			n = t.purge(1)
		}
		t.above(h.Fence, claimOn(h.ID))
	}},
	{"a list by ref does not show a command of which only the ID is left", func(t *storeTest) {
		if lacks[onlyonce.Lister](t.store) {
			t.Skip("the store is not a Lister")
		}
		t.remembered(claimOf("gone"), completed("made"))
		t.complete(claimOf("there"), completed("made"))
		t.lists(onlyonce.Filter{Ref: completed("").Result.Ref}, idOf("there"))
		t.lists(onlyonce.Filter{State: onlyonce.StateRemembered}, idOf("gone"))
	}},
	{"a person can delete a command of which only the ID is left, and decide nothing else", func(t *storeTest) {
		r, ok := t.store.(onlyonce.Resolver)
		if !ok {
			t.Skip("the store is not a Resolver")
		}
		seen := t.remembered(claimOf("k"), completed("made"))
		was := t.snap(seen.ID)
		for _, s := range endings {
			t.wantErr(onlyonce.ErrKeyExpired, "resolve as "+string(s.State), r.Resolve(t.ctx, seen, s))
		}
		as := seen
		as.State = onlyonce.StateCompleted
		t.wantErr(onlyonce.ErrLost, "delete as seen before", r.Resolve(t.ctx, as, onlyonce.Settlement{}))
		t.unchanged(was)
		if err := r.Resolve(t.ctx, seen, onlyonce.Settlement{}); err != nil {
			t.Fatalf("delete: %v", err)
		}
		t.mustBeAbsent(seen.ID)
		t.asNew(seen.ID)
		t.mustBeLost(holdOf(seen))
		if now := t.lookup(seen.ID); now.Fence <= seen.Fence {
			t.Errorf("the fence went from %d to %d", seen.Fence, now.Fence)
		}
	}},
	{"a decision's result has a keep, too", func(t *storeTest) {
		if lacks[onlyonce.Resolver](t.store) {
			t.Skip("the store is not a Resolver")
		}
		c, s := claimOf("k"), completed("by hand")
		s.Result.Keep = short
		if err := t.resolve(c.ID, t.complete(c, unknown("no response")).Fence, s); err != nil {
			t.Fatalf("resolve: %v", err)
		}
		t.awaitForgetting(c.ID)
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"a Guard rejects a request that comes too late, and runs nothing, with and without a cache", func(t *storeTest) {
		settler, reader := t.cachingGuard(long), t.cachingGuard(long)
		plain := onlyonce.New(t.store, onlyonce.Config{Observer: onlyonce.DiscardEvents})
		req := requestOf("k", short)
		req.Remember = long
		runs := 0
		do := func(g *onlyonce.Guard) error {
			_, err := onlyonce.Do(t.ctx, g, req, func(context.Context) (string, error) { runs++; return "made", nil })
			return err
		}
		if err := do(settler); err != nil {
			t.Fatalf("run: %v", err)
		}
		_ = do(reader)
		t.awaitForgetting(req.ID)
		for i, g := range []*onlyonce.Guard{settler, reader, plain} {
			if err := do(g); !errors.Is(err, onlyonce.ErrKeyExpired) {
				t.Errorf("Guard %d: the error is %v", i, err)
			}
		}
		if runs != 1 {
			t.Errorf("the function ran %d times", runs)
		}
	}},
}

// remembered completes a command with s, and returns its record when only its ID is left.
func (t *storeTest) remembered(c onlyonce.Claim, s onlyonce.Settlement) onlyonce.Record {
	t.Helper()
	s.Result.Keep = short
	t.settle(holdOf(t.mustClaim(c)), s)
	return t.awaitForgetting(c.ID)
}

// awaitForgetting waits until only the ID of a command is left, and returns the record.
func (t *storeTest) awaitForgetting(id onlyonce.ID) (r onlyonce.Record) {
	t.Helper()
	t.until("the result expires", func() bool {
		r = t.lookup(id)
		return r.State == onlyonce.StateRemembered
	})
	return r
}
