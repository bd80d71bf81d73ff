package storetest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
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
	{"a claim whose context ends meanwhile is granted completely or not at all", func(t *storeTest) {
		for range 100 {
			c := claimOf(newOwner())
			ctx, cancel := context.WithTimeout(t.ctx, rand.N(500*time.Microsecond))
			r, err := t.store.Claim(ctx, c)
			cancel()
			if err == nil {
				t.wantSame(r, t.lookup(c.ID))
			}
			// The claim is repeated, as by a caller that got no response.
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
				t.wantSame(was, r)
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
					t.Errorf("claim of a new command was not granted")
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

var copyRules = []rule{
	{"what a caller passed in can be changed afterwards", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		clear(c.Fingerprint)
		given := steps{"charge": []byte("ch_1")}
		t.renew(h, long, given)
		clear(given["charge"])
		given["more"] = []byte("steps")
		s := completed("made")
		s.Result.Header["Link"] = []string{"<a>", "<b>"}
		t.settle(h, s)
		clear(s.Result.Body)
		s.Result.Header["Link"][1] = "<changed>"
		s.Result.Header["More"] = []string{"header"}
		delete(s.Result.Header, "Location")

		r := t.lookup(c.ID)
		want := completed("made").Result
		want.Header["Link"] = []string{"<a>", "<b>"}
		t.sameResult(want, r.Result)
		t.hasSteps(c.ID, steps{"charge": []byte("ch_1")})
		if !bytes.Equal(r.Fingerprint, claimOf("k").Fingerprint) {
			t.Errorf("the fingerprint is now %x", r.Fingerprint)
		}
	}},
	{"a body without a header can be changed afterwards", func(t *storeTest) {
		h, body := holdOf(t.mustClaim(claimOf("k"))), []byte("made")
		t.settle(h, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: body}, Keep: long})
		clear(body)
		t.sameResult(onlyonce.Result{Body: []byte("made")}, t.lookup(h.ID).Result)
	}},
	{"what a caller passed in to take over a command can be changed afterwards", func(t *storeTest) {
		c := skipping(claimOf("k"))
		t.complete(c, failed("no stock"))
		next := comparing(greedy(c), "granted later")
		t.mustClaim(next)
		clear(next.Fingerprint)
		if r := t.lookup(c.ID); string(r.Fingerprint) != "granted later" {
			t.Errorf("the fingerprint is now %q", r.Fingerprint)
		}
	}},
	{"what a caller got does not change with the record", func(t *storeTest) {
		c := claimOf("k")
		var got, kept []onlyonce.Record
		note := func(r onlyonce.Record) { got, kept = append(got, r), append(kept, clone(r)) }
		h := holdOf(t.mustClaim(c))
		t.renew(h, long, steps{"charge": []byte("ch_1")})
		note(t.lookup(c.ID))
		t.renew(h, long, steps{"charge": []byte("ch_2"), "mail": []byte("m_1")})
		note(t.lookup(c.ID))
		bad := failed("no stock")
		bad.Result = completed("out of stock").Result
		t.settle(h, bad)
		note(t.claim(newCaller(c)))
		r := t.mustClaim(greedy(c))
		note(r)
		t.renew(holdOf(r), long, steps{"charge": []byte("ch_3")})
		t.settle(holdOf(r), keeping(completed("made"), short))
		t.awaitExpiry(c.ID)
		if p, ok := t.store.(onlyonce.Purger); ok {
			if _, err := p.Purge(t.ctx, 10); err != nil {
				t.Fatalf("purge: %v", err)
			}
		}
		t.complete(newCaller(c), completed("anew"))
		for i := range got {
			t.wantSame(kept[i], got[i])
		}
	}},
}

func clone(r onlyonce.Record) onlyonce.Record {
	r.Fingerprint = bytes.Clone(r.Fingerprint)
	r.Result.Body = bytes.Clone(r.Result.Body)
	r.Result.Header = maps.Clone(r.Result.Header)
	for name, values := range r.Result.Header {
		r.Result.Header[name] = slices.Clone(values)
	}
	r.Steps = maps.Clone(r.Steps)
	for name, value := range r.Steps {
		r.Steps[name] = bytes.Clone(value)
	}
	return r
}

var waitRules = []rule{
	{"a waiter for a command hears of its end", func(t *storeTest) {
		t.wakes(func(h onlyonce.Hold) error { return t.store.Settle(t.ctx, h, keeping(completed("made"), poll)) })
	}},
	{"a waiter for a command hears of its release", func(t *storeTest) {
		t.wakes(func(h onlyonce.Hold) error { return t.store.Settle(t.ctx, h, onlyonce.Settlement{}) })
	}},
	{"a waiter for a command hears of a person's decision", func(t *storeTest) {
		resolver, ok := t.store.(onlyonce.Resolver)
		if !ok {
			t.Skip("the store is not a Resolver")
		}
		unknown := onlyonce.Settlement{State: onlyonce.StateUnknown}
		t.settle(holdOf(t.mustClaim(claimOf("k"))), unknown)
		t.wakes(func(onlyonce.Hold) error { return resolver.Resolve(t.ctx, t.lookup(idOf("k")), unknown) })
	}},
	{"a wait ends with its context", func(t *storeTest) {
		c := claimOf("k")
		t.mustClaim(c)
		ctx, cancel := context.WithCancel(t.ctx)
		ended := make(chan error, 1)
		go func() { ended <- t.store.(onlyonce.Waiter).Wait(ctx, c.ID) }()
		cancel()
		select {
		case <-ended:
		case <-t.ctx.Done():
			t.Error("the wait did not end")
		}
	}},
}

// wakes waits twice: the first wait may end because the store then begins to listen and
// could have missed the end before, the second ends because it is notified. wakes
// claims and ends the command repeatedly, because a test cannot know when a wait has begun.
func (t *storeTest) wakes(end func(onlyonce.Hold) error) {
	t.Helper()
	for range 2 {
		woken := make(chan error, 1)
		go func() { woken <- t.store.(onlyonce.Waiter).Wait(t.ctx, idOf("k")) }()
		t.until("the wait ends", func() bool {
			r := t.claim(claimOf("k"))
			if err := end(holdOf(r)); err != nil && !errors.Is(err, onlyonce.ErrLost) {
				t.Fatalf("end: %v", err)
			}
			select {
			case err := <-woken:
				if err != nil {
					t.Errorf("wait: %v", err)
				}
				return true
			default:
				return false
			}
		})
	}
}
