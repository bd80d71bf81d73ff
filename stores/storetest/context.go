package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var contextRules = []rule{
	{"a call whose context has ended is an error and changes nothing", func(t *storeTest) {
		ctx, cancel := context.WithCancel(t.ctx)
		cancel()
		t.rejects(ctx, context.Canceled)
	}},
	{"a call whose deadline has passed is an error and changes nothing", func(t *storeTest) {
		ctx, cancel := context.WithDeadline(t.ctx, time.Now().Add(-time.Second))
		defer cancel()
		t.rejects(ctx, context.DeadlineExceeded)
	}},
	{"a claim whose context ends meanwhile is given whole or not at all", func(t *storeTest) {
		for range 100 {
			c := claimOf(newOwner())
			ctx, cancel := context.WithTimeout(t.ctx, rand.N(500*time.Microsecond))
			r, err := t.store.Claim(ctx, c)
			cancel()
			if err == nil {
				t.same(r, t.lookup(c.ID))
			}
			// The claim is repeated, as by a caller who got no answer.
			if r := t.mustClaim(c); r.Attempt != 1 {
				t.Errorf("the repeated claim is attempt %d, want 1", r.Attempt)
			}
		}
	}},
	{"a settlement whose context ends meanwhile is made whole or not at all", func(t *storeTest) {
		for range 100 {
			c := claimOf(newOwner())
			was := t.mustClaim(c)
			ctx, cancel := context.WithTimeout(t.ctx, rand.N(500*time.Microsecond))
			s := completed("made")
			err := t.store.Settle(ctx, holdOf(was), s)
			cancel()
			r := t.lookup(c.ID)
			if err == nil && r.State != s.State {
				t.Fatalf("settled without an error, but the record is %s", describe(r))
			}
			if r.State == s.State {
				t.sameResult(s.Result, r.Result)
			} else {
				t.same(was, r)
			}
			t.settle(holdOf(was), s)
		}
	}},
	{"calls whose context ends do not harm those beside them", func(t *storeTest) {
		together(8, func(i int) {
			for range 25 {
				ctx, cancel := t.ctx, context.CancelFunc(func() {})
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(t.ctx, rand.N(200*time.Microsecond))
				}
				c := claimOf(newOwner())
				r, err := t.store.Claim(ctx, c)
				cancel()
				switch {
				case err != nil && i%2 != 0:
					t.Errorf("claim with a living context: %v", err)
				case err == nil && r.Owner != c.Owner:
					t.Errorf("claim of a new command was not given")
				}
			}
		})
	}},
}

// rejects wants every method to reject a context that has ended.
func (t *storeTest) rejects(ctx context.Context, want error) {
	t.Helper()
	running, failing := claimOf("running"), claimOf("failed")
	h := holdOf(t.mustClaim(running))
	t.complete(failing, failed("no stock"))
	before, also := t.snap(running.ID), t.snap(failing.ID)

	rejected := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: got error %v, want %v", what, err, want)
		}
	}
	_, err := t.store.Claim(ctx, claimOf("new"))
	rejected("claim", err)
	t.mustBeAbsent(idOf("new"))
	_, err = t.store.Claim(ctx, greedy(failing))
	rejected("claim", err)
	_, err = t.store.Lookup(ctx, running.ID)
	rejected("lookup", err)
	rejected("renew", t.store.Renew(ctx, h, time.Hour, steps{"a": []byte("b")}))
	rejected("settle", t.store.Settle(ctx, h, completed("made")))
	rejected("release", t.store.Settle(ctx, h, onlyonce.Settlement{}))
	if p, ok := t.store.(onlyonce.Purger); ok {
		_, err := p.Purge(ctx, 10)
		rejected("purge", err)
	}
	if r, ok := t.store.(onlyonce.Resolver); ok {
		rejected("resolve", r.Resolve(ctx, also.Record, onlyonce.Settlement{}))
	}
	if l, ok := t.store.(onlyonce.Lister); ok {
		var last error
		for _, last = range l.List(ctx, onlyonce.Filter{}) {
			if last == nil {
				t.Error("a record was listed")
			}
		}
		rejected("list", last)
	}
	t.unchanged(before)
	t.unchanged(also)
}
