package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var claimRules = slices.Concat([]rule{
	{"the first claim gets a new command", func(t *storeTest) {
		c := claimOf("k")
		r := t.mustClaim(c)
		if r.Attempt != 1 || r.Fence <= 0 {
			t.Errorf("got attempt %d with fence %d, want attempt 1 with a positive fence", r.Attempt, r.Fence)
		}
		if r.CreatedAt.IsZero() || !r.SettledAt.IsZero() {
			t.Errorf("created at %v and settled at %v, want a time and none", r.CreatedAt, r.SettledAt)
		}
		t.sameEnd("LeaseLeft", c.Lease, r.LeaseLeft, 0)
		t.wantSame(onlyonce.Record{
			ID: c.ID, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Owner: c.Owner,
			Attempt: 1, Fence: r.Fence, CreatedAt: r.CreatedAt,
		}, r)
		if r.KeepLeft != 0 {
			t.Errorf("KeepLeft is %v while it is processing, want 0", r.KeepLeft)
		}
	}},
	{"Lookup shows the record that Claim returned", func(t *storeTest) {
		r := t.mustClaim(claimOf("k"))
		t.wantSame(r, t.lookup(r.ID))
	}},
	{"a record that is not there is not found", func(t *storeTest) {
		t.mustClaim(claimOf("k"))
		t.mustBeAbsent(idOf("other"))
	}},
	{"no other claim gets a running command", func(t *storeTest) {
		c := claimOf("k")
		t.mustClaim(c)
		t.mustReject(greedy(c), t.snap(c.ID))
	}},
	{"other commands can be claimed meanwhile", func(t *storeTest) {
		for _, key := range []string{"a", "b", "c"} {
			t.mustClaim(claimOf(key))
		}
	}},
	{"owners are compared byte for byte", func(t *storeTest) {
		owners := []string{
			"abcdefghijklmnop", "ABCDEFGHIJKLMNOP", "abcdefghijklmno ", "abcdefghijklmno\x00",
			strings.Repeat("\x00", 16), strings.Repeat("\xff", 16), "'\"\\%_;--\n\r\t\x1a\x00?$1",
		}
		for i, owner := range owners {
			c := claimOf(strings.Repeat("k", i+1))
			c.Owner = owner
			h := holdOf(t.mustClaim(c))
			was := t.snap(c.ID)
			for _, other := range owners {
				if other != owner {
					h.Owner = other
					t.wantErr(onlyonce.ErrLost, "settle by another owner", t.store.Settle(t.ctx, h, completed("stolen")))
				}
			}
			t.unchanged(was)
		}
	}},
	{"a claim that is repeated while it runs is recognized and changes nothing", func(t *storeTest) {
		c := claimOf("k")
		t.mustClaim(c)
		was := t.snap(c.ID)
		c.Lease = time.Hour
		c.RetryFailed, c.TakeUnknown = true, true
		t.wantSame(was.Record, t.mustClaim(c))
		t.unchanged(was)
	}},
	{"a claim that is repeated after its lease lapsed is recognized and changes nothing", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		c.TakeUnknown = true
		t.wantSame(r, t.mustClaim(c))
		t.unchanged(snapshot{r, time.Now()})
	}},
	{"a claim that is repeated after another took over is not granted", func(t *storeTest) {
		c := claimOf("k")
		t.awaitLapse(holdOf(t.mustClaim(c)))
		t.mustClaim(greedy(c))
		c.TakeUnknown = true
		t.mustReject(c, t.snap(c.ID))
	}},
	{"a lease and a keep can last a hundred years", func(t *storeTest) {
		const century = 100 * 365 * 24 * time.Hour
		c := claimOf("k")
		c.Lease = century
		r := t.mustClaim(c)
		t.sameEnd("LeaseLeft", century, r.LeaseLeft, 0)
		t.settle(holdOf(r), keeping(completed("made"), century))
		t.sameEnd("KeepLeft", century, t.lookup(c.ID).KeepLeft, 0)
	}},
}, inEvery("a claim of the same owner is recognized when the command is ", func(t *storeTest, stand recordState) {
	c := claimOf("k")
	r := stand.enter(t, c)
	was := t.snap(c.ID)
	again := t.claim(c)
	if again.Owner != c.Owner {
		t.Errorf("the record is %s, want the claim's own", describe(again))
	}
	t.wantSame(r, again)
	t.unchanged(was)
}), inEvery("a claim that takes nothing changes nothing when the command is ", func(t *storeTest, stand recordState) {
	c := claimOf("k")
	stand.enter(t, c)
	t.mustReject(newCaller(c), t.snap(c.ID))
}))

var fingerprintRules = slices.Concat(
	inEvery("another fingerprint is rejected and changes nothing when the command is ", func(t *storeTest, stand recordState) {
		c := claimOf("k")
		stand.enter(t, c)
		was := t.snap(c.ID)
		for _, lease := range []time.Duration{time.Millisecond, time.Hour} {
			other := greedy(c)
			other.Fingerprint, other.Lease = onlyonce.Fingerprint([]byte("another order")), lease
			t.mustReject(other, was)
		}
	}), inEvery("a claim that leaves open whether anything is compared changes nothing when the command is ", func(t *storeTest, stand recordState) {
		c := claimOf("k")
		stand.enter(t, c)
		was := t.snap(c.ID)
		for _, c := range ambiguousClaims(greedy(c)) {
			r, err := t.store.Claim(t.ctx, c)
			t.mustRejectAmbiguous("claim", r, err)
		}
		t.unchanged(was)
	}), []rule{
		{"fingerprints that differ in one bit, in length or in a space are different", func(t *storeTest) {
			c := claimOf("k")
			c.Fingerprint = []byte("0123456789abcdef")
			t.awaitLapse(holdOf(t.mustClaim(c)))
			for _, fp := range []string{"0123456789abcdee", "0123456789abcdeF", "0123456789abcdef ", "0123456789abcdef\x00", "0123456789abcde", "0"} {
				other := greedy(c)
				other.Fingerprint = []byte(fp)
				t.mustReject(other, t.snap(c.ID))
			}
			t.mustClaim(greedy(c))
		}},
		{"a fingerprint of any bytes and length comes back", func(t *storeTest) {
			for i, fp := range [][]byte{{0}, []byte(strings.Repeat("\xff", 31)), everyByte()} {
				c := claimOf(strings.Repeat("k", i+1))
				c.Fingerprint = fp
				t.wantSame(t.mustClaim(c), t.lookup(c.ID))
				if got := t.lookup(c.ID).Fingerprint; !slices.Equal(got, fp) {
					t.Errorf("the fingerprint is %x, want %x", got, fp)
				}
			}
		}},
		{"a claim that skips the fingerprint matches any, and keeps the record's", func(t *storeTest) {
			c := claimOf("k")
			t.complete(c, failed("no stock"))
			if r := t.mustClaim(skipping(greedy(c))); !slices.Equal(r.Fingerprint, c.Fingerprint) {
				t.Errorf("the fingerprint is now %x, want %x", r.Fingerprint, c.Fingerprint)
			}
		}},
		{"a record without a fingerprint matches any, and gets that of the claim that takes it over", func(t *storeTest) {
			c := skipping(claimOf("k"))
			if r := t.complete(c, failed("no stock")); r.Fingerprint != nil {
				t.Errorf("the fingerprint is %x, want none", r.Fingerprint)
			}
			other := comparing(greedy(c), "granted later")
			if r := t.mustClaim(other); !slices.Equal(r.Fingerprint, other.Fingerprint) {
				t.Errorf("the fingerprint is %q, want %q", r.Fingerprint, other.Fingerprint)
			}
			if r := t.lookup(c.ID); !slices.Equal(r.Fingerprint, other.Fingerprint) {
				t.Errorf("the stored fingerprint is %q, want %q", r.Fingerprint, other.Fingerprint)
			}
		}},
		{"a record without a fingerprint gets none from a claim that is rejected", func(t *storeTest) {
			c := skipping(claimOf("k"))
			t.mustClaim(c)
			t.mustReject(comparing(greedy(c), "of no account"), t.snap(c.ID))
		}},
		{"no fingerprint on either side matches", func(t *storeTest) {
			c := skipping(claimOf("k"))
			t.complete(c, unknown("no response"))
			if r := t.mustClaim(greedy(c)); r.Fingerprint != nil {
				t.Errorf("the fingerprint is %x, want none", r.Fingerprint)
			}
		}},
		{"a completed command without a fingerprint is replayed to any", func(t *storeTest) {
			c := skipping(claimOf("k"))
			r := t.complete(c, completed("made"))
			t.wantSame(r, t.claim(comparing(greedy(c), "another")))
		}},
		{"a completed command is replayed to a claim that skips the fingerprint", func(t *storeTest) {
			c := claimOf("k")
			r := t.complete(c, completed("made"))
			t.wantSame(r, t.claim(skipping(greedy(c))))
		}},
		{"a claim that leaves open whether anything is compared is rejected", func(t *storeTest) {
			for _, c := range ambiguousClaims(claimOf("new")) {
				r, err := t.store.Claim(t.ctx, c)
				t.mustRejectAmbiguous("claim", r, err)
			}
			t.mustBeAbsent(idOf("new"))
		}},
	})

// skipping returns c with SkipFingerprint: it compares nothing.
func skipping(c onlyonce.Claim) onlyonce.Claim {
	c.Fingerprint, c.SkipFingerprint = nil, true
	return c
}

// comparing returns c with another fingerprint.
func comparing(c onlyonce.Claim, text string) onlyonce.Claim {
	c.Fingerprint, c.SkipFingerprint = []byte(text), false
	return c
}

// ambiguousClaims returns claims like c that leave open whether anything is compared.
func ambiguousClaims(c onlyonce.Claim) []onlyonce.Claim {
	none, empty, both := c, c, c
	none.Fingerprint = nil
	empty.Fingerprint = []byte{}
	both.SkipFingerprint = true
	return []onlyonce.Claim{none, empty, both}
}

// mustRejectAmbiguous checks that a claim is rejected with an error that says how to fix it.
func (t *storeTest) mustRejectAmbiguous(what string, r onlyonce.Record, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "SkipFingerprint") {
		t.Errorf("%s: got %s and error %v, want one that names SkipFingerprint", what, describe(r), err)
	}
	if errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("%s: got error %v, want one of the caller's mistake only", what, err)
	}
}

var idRules = []rule{
	{"the division into tenant, operation and key counts", distinct(divided("a", "b", "c", "/", "|", ":", "\x00", " ", ",", "\x1f"))},
	{"no part can be moved to another", distinct([]onlyonce.ID{
		{Tenant: "a", Key: "k"},
		{Operation: "a", Key: "k"},
		{Tenant: "a", Operation: "a", Key: "k"},
		{Key: "k"},
		{Key: "ak"},
		{Tenant: "k", Key: "a"},
		{Tenant: "1", Operation: "1a", Key: "k"},
		{Tenant: "1", Operation: "a1", Key: "k"},
	})},
	{"a length that is part of a key is no length", distinct([]onlyonce.ID{
		{Tenant: "\x00\x00\x00\x00\x00\x00\x00\x01a", Key: "k"},
		{Tenant: "\x00", Operation: "\x00\x00\x00\x00\x00\x00\x01a", Key: "k"},
		{Tenant: "1:a", Key: "k"},
		{Tenant: "a", Operation: "1:", Key: "k"},
		{Tenant: "a", Key: "1:k"},
	})},
	{"keys that a collation takes for the same are different", distinct(keys(
		"abc", "ABC", "Abc", "äbc", "a\u0308bc", "àbc", "ábc", "ａｂｃ", "ᵃbc", "ⓐbc", "аbc",
		"strasse", "straße", "STRASSE", "STRAẞE", "i", "I", "ı", "İ", "i\u0307", "ﬁ", "fi", "K", "\u212a", "k",
		"Å", "\u212b", "A\u030a", "ǆ", "dž", "æ", "ae", "ø", "o", "½", "1/2", "²", "2", "ſ", "s",
		"ﾊﾞ", "バ", "ば", "ハ\u3099", "\u1100\u1161", "가",
	))},
	{"keys that differ in blanks and invisible characters are different", distinct(keys(
		"abc", " abc", "abc ", "abc  ", "abc\t", "abc\n", "abc\r\n", "abc\u00a0", "abc\u3000", "abc\u200b", "ab\u200dc", "ab\u00adc",
		"\ufeffabc", "abc\x00", "abc\x00\x00", "\x00abc", "a bc", "a  bc", " ", "  ", "\x00", "\u200b",
	))},
	{"keys that are equal as numbers are different", distinct(keys(
		"1", "01", "1.0", "1e0", "+1", " 1", "0x1", "1.", "0", "-0", "00", "9223372036854775807", "9223372036854775808", "9.223372036854775807e18", "NaN", "null", "NULL", "true",
	))},
	{"keys that are no text are different", distinct(keys(
		"\xff", "\xfe", "\xff\xfe", "\ufffd", "\xc0\x80", "\x00", "\x80", "\xc3", "\xe9", "é", "e\u0301", "\xed\xa0\x80", "\xed\xa0\x81", "\xf5\x80\x80\x80", "a\xffb", "a\xfeb", "a\ufffdb", "ab",
	))},
	{"keys that mean something to a database are only keys", distinct(keys(
		"'", "''", `"`, `\`, `\\`, `\'`, "';--", "' OR '1'='1", "'); DROP TABLE onlyonce_records;--", "%", "%%", "_", "a%", "a_", "*", "?", "$1", ":a", "@a", "{x}", "{x}y", "{}", "[a]",
		"a.b", "a.*", "a.>", ">", "/", "../x", "a/b", "#", "&", "=", "`", "<b>", "&lt;", "\n", "\r\nX: y", "\x1b[0m", "\x1a", "U&'\\0061'", "x'61'", "0x61", "/*", "*/", "--",
	))},
	{"keys of every length up to the longest are different", func(t *storeTest) {
		var ids []onlyonce.ID
		for _, n := range []int{1, 2, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 254, 255, 256, 511, 512, 513, 1023, 1024} {
			long := strings.Repeat("k", n)
			ids = append(ids, keys(long, long[:n-1]+"l", "l"+long[1:])...)
		}
		distinct(unique(ids))(t)
	}},
	// A store may index a part of the hash only.
	{"IDs whose hashes begin or end with the same 48 bits are different", func(t *storeTest) {
		begin, end := keys("order-6568829", "order-16656820"), keys("item-28698554", "item-40953834")
		if a, b := begin[0].Hash(), begin[1].Hash(); a == b || [6]byte(a[:]) != [6]byte(b[:]) {
			t.Fatalf("the hashes are %x and %x", a, b)
		}
		if a, b := end[0].Hash(), end[1].Hash(); a == b || [6]byte(a[26:]) != [6]byte(b[26:]) {
			t.Fatalf("the hashes are %x and %x", a, b)
		}
		distinct(append(begin, end...))(t)
	}},
	{"tenants and operations of 1 KiB are kept whole", func(t *storeTest) {
		kib := strings.Repeat("0123456789abcdef", 64)
		distinct([]onlyonce.ID{
			{Tenant: kib, Operation: kib, Key: kib},
			{Tenant: kib[1:] + "0", Operation: kib, Key: kib},
			{Tenant: kib[:1023] + "g", Operation: kib, Key: kib},
			{Tenant: kib, Operation: kib[:1023] + "g", Key: kib},
			{Tenant: kib, Operation: kib, Key: kib[:1023] + "g"},
			{Tenant: kib[:1023], Operation: "f" + kib[:1023], Key: kib},
			{Tenant: strings.Repeat("é", 512), Operation: strings.Repeat("日", 341), Key: strings.Repeat("🎉", 256)},
		})(t)
	}},
}

func keys(all ...string) []onlyonce.ID {
	var ids []onlyonce.ID
	for _, k := range all {
		ids = append(ids, onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: k})
	}
	return ids
}

// divided returns every way to divide the three letters, joined by each separator, into
// three parts, including those with empty tenants and operations.
func divided(a, b, c string, separators ...string) []onlyonce.ID {
	var ids []onlyonce.ID
	for _, sep := range separators {
		text := a + sep + b + sep + c
		for i := 0; i < len(text); i++ {
			for j := i; j < len(text); j++ {
				ids = append(ids, onlyonce.ID{Tenant: text[:i], Operation: text[i:j], Key: text[j:]})
			}
		}
	}
	return unique(ids)
}

func unique(ids []onlyonce.ID) []onlyonce.ID {
	var once []onlyonce.ID
	seen := map[onlyonce.ID]bool{}
	for _, id := range ids {
		if !seen[id] {
			once = append(once, id)
		}
		seen[id] = true
	}
	return once
}

// distinct returns a rule: each of the IDs is a separate command, and is returned byte
// for byte.
func distinct(ids []onlyonce.ID) func(*storeTest) {
	return func(t *storeTest) {
		held := make([]onlyonce.Record, len(ids))
		for i, id := range ids {
			c := claimOn(id)
			held[i] = t.claim(c)
			if held[i].Owner != c.Owner {
				t.Fatalf("%q was taken for another command", id)
			}
		}
		for i, id := range ids {
			t.wantSame(held[i], t.lookup(id))
			t.settle(holdOf(held[i]), completed(fmt.Sprint(i)))
		}
		for i, id := range ids {
			if got := t.claim(claimOn(id)).Result.Body; string(got) != fmt.Sprint(i) {
				t.Errorf("%q returned %q, want %d", id, got, i)
			}
		}
		t.listed(ids)
	}
}

// listed wants a list to have exactly the records of ids, if the store lists.
func (t *storeTest) listed(ids []onlyonce.ID) {
	t.Helper()
	lister, ok := t.store.(onlyonce.Lister)
	if !ok {
		return
	}
	missing := map[onlyonce.ID]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	for r, err := range lister.List(t.ctx, onlyonce.Filter{}) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if !missing[r.ID] {
			t.Errorf("the list has %q, which is not there or was listed before", r.ID)
		}
		delete(missing, r.ID)
	}
	for id := range missing {
		t.Errorf("the list lacks %q", id)
	}
}

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
