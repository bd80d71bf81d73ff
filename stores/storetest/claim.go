package storetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var claimRules = slices.Concat([]rule{
	{"a new command is given to the first claim", func(t *trial) {
		c := claimOf("k")
		r := t.given(c)
		if r.Attempt != 1 || r.Fence <= 0 {
			t.Errorf("got attempt %d with fence %d, want attempt 1 with a positive fence", r.Attempt, r.Fence)
		}
		if r.CreatedAt.IsZero() || !r.SettledAt.IsZero() {
			t.Errorf("created at %v and settled at %v, want a time and none", r.CreatedAt, r.SettledAt)
		}
		t.sameEnd("LeaseLeft", c.Lease, r.LeaseLeft, 0)
		t.same(onlyonce.Record{
			ID: c.ID, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Owner: c.Owner,
			Attempt: 1, Fence: r.Fence, CreatedAt: r.CreatedAt,
		}, r)
		if r.KeepLeft != 0 {
			t.Errorf("KeepLeft is %v while it is processing, want 0", r.KeepLeft)
		}
	}},
	{"Lookup shows the record that Claim returned", func(t *trial) {
		r := t.given(claimOf("k"))
		t.same(r, t.lookup(r.ID))
	}},
	{"a record that is not there is not found", func(t *trial) {
		t.given(claimOf("k"))
		t.absent(idOf("other"))
	}},
	{"a running command is given to nobody else", func(t *trial) {
		c := claimOf("k")
		t.given(c)
		t.refused(eager(c), t.snap(c.ID))
	}},
	{"other commands can be claimed meanwhile", func(t *trial) {
		for _, key := range []string{"a", "b", "c"} {
			t.given(claimOf(key))
		}
	}},
	{"owners are compared byte for byte", func(t *trial) {
		owners := []string{
			"abcdefghijklmnop", "ABCDEFGHIJKLMNOP", "abcdefghijklmno ", "abcdefghijklmno\x00",
			strings.Repeat("\x00", 16), strings.Repeat("\xff", 16), "'\"\\%_;--\n\r\t\x1a\x00?$1",
		}
		for i, owner := range owners {
			c := claimOf(strings.Repeat("k", i+1))
			c.Owner = owner
			h := holdOf(t.given(c))
			was := t.snap(c.ID)
			for _, other := range owners {
				if other != owner {
					h.Owner = other
					t.wants(onlyonce.ErrLost, "settle by another owner", t.store.Settle(t.ctx, h, completed("stolen")))
				}
			}
			t.unchanged(was)
		}
	}},
	{"a claim that is repeated while it runs is recognised and changes nothing", func(t *trial) {
		c := claimOf("k")
		t.given(c)
		was := t.snap(c.ID)
		c.Lease = time.Hour
		c.RetryFailed, c.TakeUnknown = true, true
		t.same(was.Record, t.given(c))
		t.unchanged(was)
	}},
	{"a claim that is repeated after its lease lapsed is recognised and changes nothing", func(t *trial) {
		c := claimOf("k")
		r := t.lapsed(holdOf(t.given(c)))
		c.TakeUnknown = true
		t.same(r, t.given(c))
		t.unchanged(snapshot{r, time.Now()})
	}},
	{"a claim that is repeated after another took over is not given", func(t *trial) {
		c := claimOf("k")
		t.lapsed(holdOf(t.given(c)))
		t.given(eager(c))
		c.TakeUnknown = true
		t.refused(c, t.snap(c.ID))
	}},
	{"a lease and a keep can last a hundred years", func(t *trial) {
		const century = 100 * 365 * 24 * time.Hour
		c := claimOf("k")
		c.Lease = century
		r := t.given(c)
		t.sameEnd("LeaseLeft", century, r.LeaseLeft, 0)
		t.settle(holdOf(r), keeping(completed("made"), century))
		t.sameEnd("KeepLeft", century, t.lookup(c.ID).KeepLeft, 0)
	}},
}, inEvery("a claim of the same owner is recognised when the command is ", func(t *trial, stand standing) {
	c := claimOf("k")
	r := stand.reach(t, c)
	was := t.snap(c.ID)
	again := t.claim(c)
	if again.Owner != c.Owner {
		t.Errorf("the record is %s, want the claim's own", describe(again))
	}
	t.same(r, again)
	t.unchanged(was)
}), inEvery("a claim that takes nothing changes nothing when the command is ", func(t *trial, stand standing) {
	c := claimOf("k")
	stand.reach(t, c)
	t.refused(again(c), t.snap(c.ID))
}))

var fingerprintRules = slices.Concat(
	inEvery("another fingerprint is refused and changes nothing when the command is ", func(t *trial, stand standing) {
		c := claimOf("k")
		stand.reach(t, c)
		was := t.snap(c.ID)
		for _, lease := range []time.Duration{time.Millisecond, time.Hour} {
			other := eager(c)
			other.Fingerprint, other.Lease = onlyonce.Fingerprint([]byte("another order")), lease
			t.refused(other, was)
		}
	}), inEvery("a claim that leaves open whether anything is compared changes nothing when the command is ", func(t *trial, stand standing) {
		c := claimOf("k")
		stand.reach(t, c)
		was := t.snap(c.ID)
		for _, c := range doubtful(eager(c)) {
			r, err := t.store.Claim(t.ctx, c)
			t.doubted("claim", r, err)
		}
		t.unchanged(was)
	}), []rule{
		{"fingerprints that differ in one bit, in length or in a blank are others", func(t *trial) {
			c := claimOf("k")
			c.Fingerprint = []byte("0123456789abcdef")
			t.lapsed(holdOf(t.given(c)))
			for _, fp := range []string{"0123456789abcdee", "0123456789abcdeF", "0123456789abcdef ", "0123456789abcdef\x00", "0123456789abcde", "0"} {
				other := eager(c)
				other.Fingerprint = []byte(fp)
				t.refused(other, t.snap(c.ID))
			}
			t.given(eager(c))
		}},
		{"a fingerprint of any bytes and length comes back", func(t *trial) {
			for i, fp := range [][]byte{{0}, []byte(strings.Repeat("\xff", 31)), everyByte()} {
				c := claimOf(strings.Repeat("k", i+1))
				c.Fingerprint = fp
				t.same(t.given(c), t.lookup(c.ID))
				if got := t.lookup(c.ID).Fingerprint; !slices.Equal(got, fp) {
					t.Errorf("the fingerprint is %x, want %x", got, fp)
				}
			}
		}},
		{"a claim that skips the fingerprint matches any, and keeps the record's", func(t *trial) {
			c := claimOf("k")
			t.done(c, failed("no stock"))
			if r := t.given(skipping(eager(c))); !slices.Equal(r.Fingerprint, c.Fingerprint) {
				t.Errorf("the fingerprint is now %x, want %x", r.Fingerprint, c.Fingerprint)
			}
		}},
		{"a record without a fingerprint matches any, and gets it from who takes it", func(t *trial) {
			c := skipping(claimOf("k"))
			if r := t.done(c, failed("no stock")); r.Fingerprint != nil {
				t.Errorf("the fingerprint is %x, want none", r.Fingerprint)
			}
			other := comparing(eager(c), "given later")
			if r := t.given(other); !slices.Equal(r.Fingerprint, other.Fingerprint) {
				t.Errorf("the fingerprint is %q, want %q", r.Fingerprint, other.Fingerprint)
			}
			if r := t.lookup(c.ID); !slices.Equal(r.Fingerprint, other.Fingerprint) {
				t.Errorf("the stored fingerprint is %q, want %q", r.Fingerprint, other.Fingerprint)
			}
		}},
		{"a record without a fingerprint gets none from a claim that is refused", func(t *trial) {
			c := skipping(claimOf("k"))
			t.given(c)
			t.refused(comparing(eager(c), "of no account"), t.snap(c.ID))
		}},
		{"no fingerprint on either side matches", func(t *trial) {
			c := skipping(claimOf("k"))
			t.done(c, unknown("no answer"))
			if r := t.given(eager(c)); r.Fingerprint != nil {
				t.Errorf("the fingerprint is %x, want none", r.Fingerprint)
			}
		}},
		{"a completed command without a fingerprint is replayed to any", func(t *trial) {
			c := skipping(claimOf("k"))
			r := t.done(c, completed("made"))
			t.same(r, t.claim(comparing(eager(c), "another")))
		}},
		{"a completed command is replayed to a claim that skips the fingerprint", func(t *trial) {
			c := claimOf("k")
			r := t.done(c, completed("made"))
			t.same(r, t.claim(skipping(eager(c))))
		}},
		{"a claim that leaves open whether anything is compared is refused", func(t *trial) {
			for _, c := range doubtful(claimOf("new")) {
				r, err := t.store.Claim(t.ctx, c)
				t.doubted("claim", r, err)
			}
			t.absent(idOf("new"))
		}},
	})

// skipping returns c as a claim that compares nothing.
func skipping(c onlyonce.Claim) onlyonce.Claim {
	c.Fingerprint, c.SkipFingerprint = nil, true
	return c
}

// comparing returns c with another fingerprint.
func comparing(c onlyonce.Claim, print string) onlyonce.Claim {
	c.Fingerprint, c.SkipFingerprint = []byte(print), false
	return c
}

// doubtful returns claims like c that leave open whether anything is compared.
func doubtful(c onlyonce.Claim) []onlyonce.Claim {
	none, empty, both := c, c, c
	none.Fingerprint = nil
	empty.Fingerprint = []byte{}
	both.SkipFingerprint = true
	return []onlyonce.Claim{none, empty, both}
}

// doubted wants a claim to be refused with an error that says what to write.
func (t *trial) doubted(what string, r onlyonce.Record, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "SkipFingerprint") {
		t.Errorf("%s: got %s and error %v, want one that names SkipFingerprint", what, describe(r), err)
	}
	if errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("%s: got error %v, want one of the caller's mistake only", what, err)
	}
}
