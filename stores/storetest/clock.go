package storetest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// RunClock tests that the clock of the calling process does not affect a store.
// place creates an empty place for records and returns a function that opens a
// store on it. That function is called more than once.
//
// Some of these stores are opened and used in a bubble of testing/synctest,
// where time.Now is first 26 years behind and then 24 years ahead. Everything
// that such a store starts must have ended when the cleanup functions of its t
// have run. The store's own clock must continue outside the bubble: in a
// server, in another process, or in a library that reads the system time.
func RunClock(t *testing.T, place func(t *testing.T) (open func(t *testing.T) onlyonce.Store)) {
	for _, c := range []struct {
		name    string
		advance time.Duration
	}{
		{"a clock that is 26 years behind", 0},
		{"a clock that is 24 years ahead", 50 * 365 * 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range clockRules {
				t.Run(r.name, func(t *testing.T) {
					open := place(t)
					r.check(&clockTrial{storeTest: newStoreTest(t, open(t)), open: open, advance: c.advance})
				})
			}
		})
	}
}

// A clockTrial is one rule's test of two stores on the same records: one of them has a
// caller whose clock is wrong.
type clockTrial struct {
	*storeTest
	open    func(t *testing.T) onlyonce.Store
	advance time.Duration
}

// astray runs f in a bubble in which the clock is wrong.
func (t *clockTrial) astray(f func(a *storeTest)) {
	t.Helper()
	synctest.Test(t.T, func(inner *testing.T) {
		time.Sleep(t.advance)
		f(newStoreTest(inner, t.open(inner)))
	})
}

type clockRule struct {
	name  string
	check func(t *clockTrial)
}

var clockRules = []clockRule{
	{"takes over no lease that is alive", func(t *clockTrial) {
		c := claimOf("k")
		t.mustClaim(c)
		was := t.snap(c.ID)
		t.astray(func(a *storeTest) {
			if r := a.claim(greedy(c)); r.Owner != c.Owner {
				t.Errorf("the command was granted: %s", describe(r))
			}
		})
		t.unchanged(was)
	}},
	{"takes over a lease that has lapsed", func(t *clockTrial) {
		c := claimOf("k")
		was := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.astray(func(a *storeTest) {
			if r := a.mustClaim(greedy(c)); r.Attempt != 2 || r.Fence <= was.Fence || !r.CreatedAt.Equal(was.CreatedAt) {
				t.Errorf("the record is %s, after fence %d", describe(r), was.Fence)
			}
		})
	}},
	{"gives and renews a lease of the length it says", func(t *clockTrial) {
		c := claimOf("k")
		t.astray(func(a *storeTest) {
			t.sameEnd("LeaseLeft", long, a.mustClaim(c).LeaseLeft, 0)
		})
		t.sameEnd("LeaseLeft", long, t.lookup(c.ID).LeaseLeft, 0)
		t.mustReject(greedy(c), t.snap(c.ID))
		t.astray(func(a *storeTest) { a.renew(holdOf(a.lookup(c.ID)), time.Hour, nil) })
		t.sameEnd("LeaseLeft", time.Hour, t.lookup(c.ID).LeaseLeft, 0)
	}},
	{"settles with a keep of the length it says", func(t *clockTrial) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.astray(func(a *storeTest) {
			a.settle(h, completed("made"))
			t.sameEnd("KeepLeft", long, a.lookup(c.ID).KeepLeft, 0)
		})
		t.sameEnd("KeepLeft", long, t.lookup(c.ID).KeepLeft, 0)
	}},
	{"sees nothing expired that is kept", func(t *clockTrial) {
		for i, s := range endings {
			r := t.complete(claimOf(fmt.Sprint(i)), s)
			was := snapshotOf(r)
			t.astray(func(a *storeTest) {
				a.wantSame(r, a.lookup(r.ID))
				a.wantSame(r, a.claim(newCaller(claimOf(fmt.Sprint(i)))))
			})
			t.unchanged(was)
		}
	}},
	{"sees nothing that has expired", func(t *clockTrial) {
		c := claimOf("k")
		was := t.mustClaim(c)
		t.settle(holdOf(was), keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		t.astray(func(a *storeTest) {
			a.mustBeAbsent(c.ID)
			a.asNew(c.ID)
		})
		if r := t.lookup(c.ID); r.Fence <= was.Fence || !r.CreatedAt.After(was.CreatedAt) {
			t.Errorf("the record is %s created at %v, after fence %d at %v", describe(r), r.CreatedAt, was.Fence, was.CreatedAt)
		}
	}},
	{"dates records by the store's clock", func(t *clockTrial) {
		before := t.complete(claimOf("before"), completed("made"))
		t.waitShortKeep() // so that the dates differ however coarse they are
		c := claimOf("k")
		t.astray(func(a *storeTest) { a.complete(c, completed("made")) })
		t.waitShortKeep()
		r, after := t.lookup(c.ID), t.mustClaim(claimOf("after"))
		for _, at := range []time.Time{r.CreatedAt, r.SettledAt} {
			if !at.After(before.SettledAt) || !at.Before(after.CreatedAt) {
				t.Errorf("dated %v, want between %v and %v", at, before.SettledAt, after.CreatedAt)
			}
		}
	}},
	{"gives fences that grow in the order of the claims", func(t *clockTrial) {
		var last int64
		next := func(on *storeTest) {
			r := on.above(last, newCaller(claimOf("k")))
			on.settle(holdOf(r), onlyonce.Settlement{})
			last = r.Fence
		}
		for range 3 {
			next(t.storeTest)
			t.astray(next)
		}
		next(t.storeTest)
	}},
	{"purges what has expired, and nothing else", func(t *clockTrial) {
		if lacks[onlyonce.Purger](t.store) {
			t.Skip("the store is not a Purger")
		}
		running, kept := t.mustClaim(claimOf("running")), t.complete(claimOf("kept"), completed("made"))
		lapsed := t.awaitLapse(holdOf(t.mustClaim(claimOf("lapsed"))))
		t.expire(3)
		t.astray(func(a *storeTest) {
			if n := a.purge(100); n != 3 {
				t.Errorf("purged %d, want 3", n)
			}
		})
		for _, r := range []onlyonce.Record{running, kept, lapsed} {
			t.wantSame(r, t.lookup(r.ID))
		}
	}},
	{"lists records in the order in which they were claimed", func(t *clockTrial) {
		if lacks[onlyonce.Lister](t.store) {
			t.Skip("the store is not a Lister")
		}
		t.mustClaim(claimOf("first"))
		t.waitShortKeep()
		t.astray(func(a *storeTest) { a.mustClaim(claimOf("second")) })
		t.waitShortKeep()
		t.mustClaim(claimOf("third"))
		t.astray(func(a *storeTest) {
			var keys []string
			for _, r := range a.list(onlyonce.Filter{State: onlyonce.StateProcessing}) {
				keys = append(keys, r.ID.Key)
			}
			if got := fmt.Sprint(keys); got != "[third second first]" {
				t.Errorf("the list is %s", got)
			}
		})
	}},
	{"resolves nothing that is held, and what has lapsed", func(t *clockTrial) {
		if lacks[onlyonce.Resolver](t.store) {
			t.Skip("the store is not a Resolver")
		}
		running, lapsed := t.mustClaim(claimOf("running")), t.awaitLapse(holdOf(t.mustClaim(claimOf("lapsed"))))
		t.astray(func(a *storeTest) {
			a.wantErr(onlyonce.ErrInFlight, "resolve", a.resolve(running.ID, running.Fence, completed("by hand")))
			a.resolved(lapsed, completed("by hand"))
		})
		t.wantSame(running, t.lookup(running.ID))
	}},
}
