package storetest

import (
	"bytes"
	"maps"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

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
			t.same(kept[i], got[i])
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
