package storetest

import (
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

var summaryRules = []rule{
	{"a summary is there from the claim until the record ends", func(t *storeTest) {
		c := summarized("k", "/v1/payments?amount=5")
		r := t.mustClaim(c)
		t.hasSummary(r, c.Summary)
		t.hasSummary(t.lookup(c.ID), c.Summary)
		t.renew(holdOf(r), long, steps{"charge": []byte("ch_1")})
		t.hasSummary(t.lookup(c.ID), c.Summary)
		t.settle(holdOf(r), completed("made"))
		t.wantSame(t.lookup(c.ID), t.claim(claimOf("k")))
		got := t.lookup(c.ID)
		t.hasSummary(got, c.Summary)
		if string(got.Fingerprint) != string(c.Fingerprint) {
			t.Errorf("the fingerprint is %x, want %x", got.Fingerprint, c.Fingerprint)
		}
	}},
	{"a summary survives an attempt that dies", func(t *storeTest) {
		c := summarized("k", "the first")
		t.hasSummary(t.awaitLapse(holdOf(t.mustClaim(c))), c.Summary)
		t.hasSummary(t.mustClaim(greedy(claimOf("k"))), c.Summary)
	}},
	{"a later attempt replaces the summary if it has one", func(t *storeTest) {
		t.complete(summarized("k", "the first"), failed("no stock"))
		again := greedy(summarized("k", "the second"))
		t.hasSummary(t.mustClaim(again), again.Summary)
		t.hasSummary(t.lookup(again.ID), again.Summary)
	}},
	{"a summary without a fingerprint comes back", func(t *storeTest) {
		r := t.mustClaim(skipping(summarized("k", "x")))
		t.wantSame(r, t.lookup(r.ID))
		if t.hasSummary(r, "x"); r.Fingerprint != nil {
			t.Errorf("the fingerprint is %x, want none", r.Fingerprint)
		}
	}},
	{"a summary keeps every byte up to the longest", func(t *storeTest) {
		for i, text := range []string{string(everyByte()), strings.Repeat("ä", onlyonce.LongestSummary/2), strings.Repeat("x", 2*onlyonce.LongestSummary+1024)} {
			r := t.mustClaim(summarized(strings.Repeat("k", i+1), text))
			t.hasSummary(t.lookup(r.ID), text)
		}
	}},
	{"a fingerprint that looks like a summary is a fingerprint", func(t *storeTest) {
		c := comparing(claimOf("k"), "\x00summary:\x02ab")
		r := t.mustClaim(c)
		if t.hasSummary(r, ""); string(r.Fingerprint) != string(c.Fingerprint) {
			t.Errorf("the fingerprint is %q, want %q", r.Fingerprint, c.Fingerprint)
		}
		t.wantSame(r, t.lookup(c.ID))
	}},
	{"a summary is not compared", func(t *storeTest) {
		c := summarized("k", "the first")
		t.complete(c, completed("made"))
		if r := t.claim(summarized("k", "the second")); r.State != onlyonce.StateCompleted {
			t.Errorf("got %s, want the completed record", describe(r))
		}
	}},
}

func summarized(key, summary string) onlyonce.Claim {
	c := claimOf(key)
	c.Summary = summary
	return c
}

func (t *storeTest) hasSummary(r onlyonce.Record, want string) {
	t.Helper()
	if r.Summary != want {
		t.Errorf("the summary is %.80q (%d bytes), want %.80q (%d)", r.Summary, len(r.Summary), want, len(want))
	}
}
