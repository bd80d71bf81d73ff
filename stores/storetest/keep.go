package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var keepRules = []rule{
	{"a settled record is absent when its keep ends", func(t *storeTest) {
		for i, s := range []onlyonce.Settlement{completed("made"), failed("no stock"), failedForGood("no such article"), unknown("no response")} {
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
	{"no attempt holds an expired command", func(t *storeTest) {
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
			// A store that repeats a settlement by itself may find that the record has expired
			// since. The end of the record, below, shows that it was written.
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
	{"an expired command is lost to the attempt that settled it once another has it", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.settle(h, keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.mustClaim(newCaller(c))
		t.mustBeLost(h)
	}},
	{"a record that is kept for good does not expire", func(t *storeTest) {
		for i, s := range []onlyonce.Settlement{completed("made"), failedForGood("no such article"), unknown("no response")} {
			for _, keep := range []time.Duration{0, onlyonce.KeepForever} {
				c := claimOf(fmt.Sprint(i, keep))
				t.settle(holdOf(t.mustClaim(c)), keeping(s, keep))
				if left := t.lookup(c.ID).KeepLeft; left != 0 {
					t.Errorf("KeepLeft is %v, want 0", left)
				}
				t.waitShortKeep()
				t.mustReject(newCaller(c), t.snap(c.ID))
				if s.State != onlyonce.StateUnknown {
					t.mustReject(greedy(c), t.snap(c.ID))
				}
			}
		}
	}},
	{"a lease and a keep may be as long as a Duration can be", func(t *storeTest) {
		const forAges, ages = time.Duration(math.MaxInt64), 90 * 365 * 24 * time.Hour // a store may shorten them to 100 years
		c := claimOf("k")
		c.Lease, c.Keep = forAges, forAges
		h := holdOf(t.mustClaim(c))
		t.renew(h, forAges, steps{"charge": []byte("ch_1")})
		if r := t.claim(greedy(c)); r.State != onlyonce.StateProcessing || r.Owner != h.Owner || r.LeaseLeft < ages {
			t.Errorf("while it runs, the record is %s", describe(r))
		}
		s := completed("made")
		s.Keep, s.Result.Keep = forAges, forAges
		t.settle(h, s)
		if r := t.claim(greedy(c)); r.State != onlyonce.StateCompleted || r.KeepLeft < ages || r.Result.Keep < ages {
			t.Errorf("when it has run, the record is %s", describe(r))
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
		t.wantSame(r, t.lookup(c.ID))
		t.settle(holdOf(r), completed("made"))
	}},
	{"a command whose lease lapsed does not expire", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.waitShortKeep()
		t.wantSame(r, t.lookup(c.ID))
	}},
}

// waitShortKeep waits until the short keep of a record that it creates has ended.
func (t *storeTest) waitShortKeep() {
	t.Helper()
	c := claimOf("a short while " + newOwner())
	t.settle(holdOf(t.mustClaim(c)), keeping(completed(""), short))
	t.awaitExpiry(c.ID)
}

var lapsedRules = []rule{
	{"a lapsed command expires when its claim's keep has passed", func(t *storeTest) {
		c := claimKeeping("k", short)
		h := holdOf(t.mustClaim(c))
		t.renew(h, short, steps{"charge": []byte("ch_1")})
		t.awaitExpiry(c.ID)
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wantErr(onlyonce.ErrLost, "renew with a step", t.store.Renew(t.ctx, h, long, steps{"late": []byte("step")}))
		for _, s := range []onlyonce.Settlement{completed("too late"), failed("too late"), unknown("too late"), {}} {
			t.wantErr(onlyonce.ErrLost, "settle as "+string(s.State), t.store.Settle(t.ctx, h, s))
		}
		if r, ok := t.store.(onlyonce.Resolver); ok {
			seen := onlyonce.Record{ID: c.ID, Fence: h.Fence, State: onlyonce.StateProcessing}
			t.wantErr(onlyonce.ErrNotFound, "resolve", r.Resolve(t.ctx, seen, completed("by hand")))
			t.wantErr(onlyonce.ErrNotFound, "delete by hand", r.Resolve(t.ctx, seen, onlyonce.Settlement{}))
		}
		t.mustBeAbsent(c.ID)
		t.asNew(c.ID)
		if r := t.lookup(c.ID); r.Fence <= h.Fence {
			t.Errorf("the fence went from %d to %d", h.Fence, r.Fence)
		}
	}},
	{"a command whose lease is alive does not expire, however short its claim's keep", func(t *storeTest) {
		c := claimKeeping("k", short)
		r := t.mustClaim(c)
		t.waitShortKeep()
		t.wantSame(r, t.lookup(c.ID))
		if p, ok := t.store.(onlyonce.Purger); ok {
			if n, err := p.Purge(t.ctx, 10); n > 1 || err != nil { // left by pass
				t.Errorf("purged %d with error %v", n, err)
			}
		}
		t.wantSame(r, t.lookup(c.ID))
		t.settle(holdOf(r), completed("made"))
	}},
	{"a lapsed command is there until its claim's keep has passed", func(t *storeTest) {
		c := claimKeeping("k", long)
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.waitShortKeep()
		t.wantSame(r, t.lookup(c.ID))
		t.mustReject(newCaller(c), t.snap(c.ID))
		if next := t.mustClaim(greedy(c)); next.Attempt != 2 {
			t.Errorf("the take-over is %s", describe(next))
		}
	}},
	{"a take-over's keep replaces the one before", func(t *storeTest) {
		c := claimKeeping("k", long)
		t.awaitLapse(holdOf(t.mustClaim(c)))
		next := greedy(c)
		next.Keep = 0
		r := t.awaitLapse(holdOf(t.mustClaim(next)))
		t.waitShortKeep()
		t.wantSame(r, t.lookup(c.ID))
		last := greedy(c)
		last.Keep = short
		t.renew(holdOf(t.mustClaim(last)), short, nil)
		t.awaitExpiry(c.ID)
	}},
	{"a command that was taken over without a keep does not expire with the one before", func(t *storeTest) {
		c := claimKeeping("k", short)
		t.complete(c, failed("no stock"))
		next := greedy(c)
		next.Keep = 0
		r := t.awaitLapse(holdOf(t.mustClaim(next)))
		t.waitShortKeep()
		t.wantSame(r, t.lookup(c.ID))
	}},
	{"a settlement's keep replaces its claim's", func(t *storeTest) {
		for i, s := range endings {
			c := claimKeeping(fmt.Sprint(i), short)
			t.complete(c, s)
			t.waitShortKeep()
			if left := t.lookup(c.ID).KeepLeft; left < 0 || left > s.Keep {
				t.Errorf("KeepLeft is %v, want at most %v", left, s.Keep)
			}
		}
	}},
	{"a purge deletes lapsed commands whose claim's keep has passed, and counts them", func(t *storeTest) {
		p, ok := t.store.(onlyonce.Purger)
		if !ok {
			t.Skip("the store is not a Purger")
		}
		held := t.awaitLapse(holdOf(t.mustClaim(claimOf("held"))))
		kept := t.awaitLapse(holdOf(t.mustClaim(claimKeeping("kept", long))))
		alive := t.mustClaim(claimKeeping("alive", short))
		last := map[onlyonce.ID]int64{}
		holds := make([]onlyonce.Hold, 7)
		for i := range holds { // all before any expires: a store may drop expired records by itself
			holds[i] = holdOf(t.mustClaim(claimKeeping(fmt.Sprint("due ", i), short)))
			last[holds[i].ID] = holds[i].Fence
		}
		for _, h := range holds {
			t.renew(h, short, nil)
		}
		for _, h := range holds {
			t.awaitExpiry(h.ID)
		}
		all := 0
		for n := -1; n != 0; all += n {
			var err error
			if n, err = p.Purge(t.ctx, 3); n > 3 || err != nil {
				t.Fatalf("purged %d with error %v, over the limit of 3", n, err)
			}
		}
		if all != len(holds) {
			t.Errorf("purged %d, want %d", all, len(holds))
		}
		for _, r := range []onlyonce.Record{held, kept, alive} {
			t.wantSame(r, t.lookup(r.ID))
		}
		for id, fence := range last {
			t.above(fence, claimOn(id))
		}
	}},
	{"what is unresolved is counted, with the age of the oldest", func(t *storeTest) {
		u, ok := t.store.(unresolver)
		if !ok {
			t.Skip("the store is not a Counter")
		}
		count := func(want int) (oldest time.Duration) {
			t.Helper()
			n, oldest, err := u.Unresolved(t.ctx)
			if n != want || err != nil || oldest < 0 || want == 0 && oldest != 0 {
				t.Errorf("%d are unresolved, the oldest for %v, with error %v, want %d", n, oldest, err, want)
			}
			return oldest
		}
		count(0)
		t.mustClaim(claimOf("running"))
		t.complete(claimOf("completed"), completed("made"))
		t.complete(claimOf("failed"), failed("no stock"))
		count(0)
		unknown := t.complete(claimOf("unknown"), unknown("no response"))
		lapsed := t.awaitLapse(holdOf(t.mustClaim(claimOf("lapsed"))))
		was := count(2)
		t.until("the oldest gets older", func() bool { return count(2) > was })
		if r, ok := t.store.(onlyonce.Resolver); ok {
			for _, rec := range []onlyonce.Record{unknown, lapsed} {
				if err := r.Resolve(t.ctx, rec, completed("by hand")); err != nil {
					t.Errorf("resolve: %v", err)
				}
			}
			count(0)
		}
		due := claimKeeping("due", short)
		t.renew(holdOf(t.mustClaim(due)), short, nil)
		t.awaitExpiry(due.ID)
		if n, _, err := u.Unresolved(t.ctx); n != 0 && ok || err != nil {
			t.Errorf("%d are unresolved with error %v, but they have expired", n, err)
		}
	}},
}

// An unresolver counts the records whose outcome is unknown.
type unresolver interface {
	// Unresolved counts unknown records and those whose lease has lapsed. It also
	// returns for how long the oldest of them has been unresolved.
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
}

// claimKeeping returns a claim whose record stays for the time keep once its lease has
// lapsed.
func claimKeeping(key string, keep time.Duration) onlyonce.Claim {
	c := claimOf(key)
	c.Keep = keep
	return c
}

// cacheRules hold for the cache of a Guard (onlyonce.Config.CacheBytes) beside decisions that
// are made without the Guard.
var cacheRules = []rule{
	{"a cache forgets within its maximum age that a person deleted a record", func(t *storeTest) {
		t.forgets(short, onlyonce.Settlement{}, "anew", func(g *onlyonce.Guard, decided time.Time) {
			t.until("the maximum age passes", func() bool { return time.Since(decided) >= short })
		})
	}},
	{"a cache forgets within its maximum age what a person's decision replaced", func(t *storeTest) {
		t.forgets(short, completed(`"by hand"`), "by hand", func(g *onlyonce.Guard, decided time.Time) {
			t.until("the maximum age passes", func() bool { return time.Since(decided) >= short })
		})
	}},
	{"a cache forgets at once what its Guard is to forget", func(t *storeTest) {
		t.forgets(long, onlyonce.Settlement{}, "anew", func(g *onlyonce.Guard, _ time.Time) { g.Forget(idOf("k")) })
	}},
	{"a cache does not replay a record that has expired", func(t *storeTest) {
		settler, reader := t.cachingGuard(long), t.cachingGuard(long)
		t.run(settler, "made", short)
		t.run(reader, "made", short)
		for i, g := range []*onlyonce.Guard{settler, reader} {
			t.awaitExpiry(idOf("k"))
			if a := t.run(g, "anew", short); a.Replayed {
				t.Errorf("Guard %d replayed %q, which has expired", i, a.Value)
			}
		}
	}},
}

func (t *storeTest) cachingGuard(maxAge time.Duration) *onlyonce.Guard {
	return onlyonce.New(t.store, onlyonce.Config{CacheBytes: 1 << 20, CacheMaxAge: maxAge, Observer: onlyonce.DiscardEvents})
}

func requestOf(key string, keep time.Duration) onlyonce.Request {
	c := claimOf(key)
	return onlyonce.Request{ID: c.ID, Fingerprint: c.Fingerprint, Keep: keep}
}

// run runs the command by a Guard, and wants no error.
func (t *storeTest) run(g *onlyonce.Guard, value string, keep time.Duration) onlyonce.Answer[string] {
	t.Helper()
	a, err := onlyonce.Do(t.ctx, g, requestOf("k", keep), func(context.Context) (string, error) { return value, nil })
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return a
}

// forgets lets a person decide s about a record that two Guards have in their caches: the one
// that settled it, and one that replayed it. After wait, both must respond with want.
func (t *storeTest) forgets(maxAge time.Duration, s onlyonce.Settlement, want string, wait func(g *onlyonce.Guard, decided time.Time)) {
	t.Helper()
	settler, reader := t.cachingGuard(maxAge), t.cachingGuard(maxAge)
	t.run(settler, "made", long)
	t.run(reader, "made", long)
	if err := t.resolve(idOf("k"), t.lookup(idOf("k")).Fence, s); err != nil {
		t.Fatalf("resolve: %v", err)
	}
	decided := time.Now()
	for _, g := range []*onlyonce.Guard{settler, reader} {
		wait(g, decided)
		if a := t.run(g, "anew", long); a.Value != want {
			t.Errorf("the response is %q, want %q", a.Value, want)
		}
	}
}
