package storetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

var keepRules = []rule{
	{"a settled record is gone when its keep ends", func(t *storeTest) {
		for i, s := range []onlyonce.Settlement{completed("made"), failed("no stock"), failedForGood("no such article"), unknown("no answer")} {
			c := claimOf(string(rune('a' + i)))
			t.settle(holdOf(t.mustClaim(c)), keeping(s, short))
			t.awaitExpiry(c.ID)
		}
	}},
	{"an expired command begins anew", func(t *storeTest) {
		c := claimOf("k")
		was := t.mustClaim(c)
		t.renew(holdOf(was), long, map[string][]byte{"charge": []byte("ch_1")})
		t.settle(holdOf(was), keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.asNew(c.ID)
		if r := t.lookup(c.ID); !r.CreatedAt.After(was.CreatedAt) {
			t.Errorf("it was created at %v, not after the expired record's %v", r.CreatedAt, was.CreatedAt)
		}
	}},
	{"an expired failure begins anew, whatever the claim takes", func(t *storeTest) {
		c := claimOf("k")
		t.settle(holdOf(t.mustClaim(c)), keeping(failed("no stock"), short))
		t.awaitExpiry(c.ID)
		t.asNew(c.ID)
	}},
	{"an expired command is nobody's", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.settle(h, keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, h, completed("made")))
		t.mustBeAbsent(c.ID)
	}},
	{"an expired command is absent to everyone in a crowd", func(t *storeTest) {
		const crowd = 64 // more than any store serves one by one
		expired := make([]onlyonce.Record, crowd)
		together(crowd, func(i int) {
			c := claimOf(fmt.Sprint(i))
			r, err := t.store.Claim(t.ctx, c)
			if err != nil || r.Owner != c.Owner {
				t.Errorf("claim got %s and error %v", describe(r), err)
			}
			// A store that repeats a settlement by itself may find that the record has
			// expired since. That it was written shows below, by its end.
			if err := t.store.Settle(t.ctx, holdOf(r), keeping(completed("made"), short)); err != nil && !errors.Is(err, onlyonce.ErrLost) {
				t.Errorf("settlement got error %v", err)
			}
			expired[i] = r
		})
		for _, r := range expired {
			t.awaitExpiry(r.ID)
		}
		resolver, resolves := t.store.(onlyonce.Resolver)
		for range 3 {
			together(crowd, func(i int) {
				r := expired[i]
				t.wantErr(onlyonce.ErrLost, "settle in the same way", t.store.Settle(t.ctx, holdOf(r), completed("made")))
				t.wantErr(onlyonce.ErrLost, "settle in another way", t.store.Settle(t.ctx, holdOf(r), failed("late")))
				t.wantErr(onlyonce.ErrLost, "release", t.store.Settle(t.ctx, holdOf(r), onlyonce.Settlement{}))
				t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, holdOf(r), long, nil))
				if resolves {
					t.wantErr(onlyonce.ErrNotFound, "resolve", resolver.Resolve(t.ctx, r, completed("by hand")))
					t.wantErr(onlyonce.ErrNotFound, "delete by hand", resolver.Resolve(t.ctx, r, onlyonce.Settlement{}))
				}
				t.mustBeAbsent(r.ID)
			})
		}
	}},
	{"an expired command is lost to who settled it once another has it", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.settle(h, keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.mustClaim(newCaller(c))
		t.lost(h)
	}},
	{"a record that is kept for good does not expire", func(t *storeTest) {
		for i, s := range []onlyonce.Settlement{
			keeping(completed("made"), 0), keeping(unknown("no answer"), 0), keeping(completed("made"), onlyonce.KeepForever), keeping(unknown("no answer"), onlyonce.KeepForever),
		} {
			c := claimOf(string(rune('a' + i)))
			t.settle(holdOf(t.mustClaim(c)), s)
			if left := t.lookup(c.ID).KeepLeft; left != 0 {
				t.Errorf("KeepLeft is %v, want 0", left)
			}
			t.pass()
			t.mustReject(newCaller(c), t.snap(c.ID))
		}
	}},
	{"a claim with a negative keep is an error and changes nothing", func(t *storeTest) {
		c := claimOf("k")
		c.Keep = -long
		if r, err := t.store.Claim(t.ctx, c); err == nil || !strings.Contains(err.Error(), "KeepForever") {
			t.Errorf("got %s and error %v, want one that names KeepForever", describe(r), err)
		}
		t.mustBeAbsent(c.ID)
	}},
	{"looking and asking do not prolong a keep", func(t *storeTest) {
		c := claimOf("k")
		t.settle(holdOf(t.mustClaim(c)), keeping(completed("made"), short))
		t.until("the record expires", func() bool { return t.claim(newCaller(c)).State == onlyonce.StateProcessing })
	}},
	{"a command that is retried does not expire with the failed attempt's keep", func(t *storeTest) {
		const keep = 10 * short
		c, clock := claimOf("k"), claimOf("clock")
		h := holdOf(t.mustClaim(clock))
		t.settle(holdOf(t.mustClaim(c)), keeping(failed("no stock"), keep))
		r := t.mustClaim(greedy(c))
		t.settle(h, keeping(completed(""), keep))
		t.awaitExpiry(clock.ID)
		t.same(r, t.lookup(c.ID))
		t.settle(holdOf(r), completed("made"))
	}},
	{"a command whose lease lapsed does not expire", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.pass()
		t.same(r, t.lookup(c.ID))
	}},
}

// pass waits until a keep of its own, a short one, has ended.
func (t *storeTest) pass() {
	t.Helper()
	c := claimOf("a short while " + newOwner())
	t.settle(holdOf(t.mustClaim(c)), keeping(completed(""), short))
	t.awaitExpiry(c.ID)
}
