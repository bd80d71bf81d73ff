package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

type steps = map[string][]byte

var stepRules = []rule{
	{"a renewal adds its steps to the record's", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		t.renew(h, long, steps{"reserve": []byte("r_1")})
		t.renew(h, long, steps{"charge": []byte("ch_1"), "mail": []byte("m_1")})
		t.renew(h, long, nil)
		t.renew(h, long, steps{})
		t.hasSteps(h.ID, steps{"reserve": []byte("r_1"), "charge": []byte("ch_1"), "mail": []byte("m_1")})
	}},
	{"a step that comes again replaces the earlier one", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		t.renew(h, long, steps{"charge": []byte("ch_1"), "mail": []byte("m_1")})
		t.renew(h, long, steps{"charge": []byte("ch_2")})
		t.renew(h, long, steps{"charge": []byte("ch_2")})
		t.hasSteps(h.ID, steps{"charge": []byte("ch_2"), "mail": []byte("m_1")})
	}},
	{"steps that are added at once are all kept", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		want := steps{}
		for i := range 16 {
			want[strings.Repeat("s", i+1)] = []byte{byte(i)}
		}
		together(16, func(i int) {
			name := strings.Repeat("s", i+1)
			if err := t.store.Renew(t.ctx, h, long, steps{name: want[name]}); err != nil {
				t.Errorf("renew: %v", err)
			}
		})
		t.hasSteps(h.ID, want)
	}},
	{"steps are kept over every way to lose a command, and added to", func(t *storeTest) {
		c := claimOf("k")
		want := steps{}
		r := t.mustClaim(c)
		for i, end := range []onlyonce.Settlement{{}, failed("no stock"), unknown("no response"), {}} {
			name := strings.Repeat("s", i+1)
			want[name] = []byte(name)
			t.renew(holdOf(r), long, steps{name: []byte(name)})
			t.endAttempt(r, end)
			t.hasSteps(c.ID, want)
			r = t.mustClaim(greedy(c))
			if !maps.EqualFunc(r.Steps, want, bytes.Equal) {
				t.Errorf("attempt %d has the steps %q, want %q", r.Attempt, r.Steps, want)
			}
		}
		t.settle(holdOf(r), completed("made"))
		t.hasSteps(c.ID, want)
	}},
	{"steps are kept when a failure is for good", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		t.renew(h, long, steps{"charge": []byte("ch_1")})
		t.settle(h, failedForGood("no such article"))
		t.hasSteps(h.ID, steps{"charge": []byte("ch_1")})
	}},
	{"steps of a hold that is lost are not added", func(t *storeTest) {
		c := claimOf("k")
		first := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
		second := holdOf(t.mustClaim(greedy(c)))
		t.renew(second, long, steps{"charge": []byte("by the second")})
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, first, long, steps{"charge": []byte("by the first")}))
		t.hasSteps(c.ID, steps{"charge": []byte("by the second")})
	}},
	{"steps have any name and any bytes", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		want := steps{
			"": []byte("no name"), "none": {}, "bytes": everyByte(), "big": bytes.Repeat([]byte("0123456789abcdef"), 8<<10),
			"Charge": []byte("1"), "charge": []byte("2"), "charge ": []byte("3"), "ch\u00e4rge": []byte("4"), "cha\u0308rge": []byte("5"),
			`"';--\%_{}[]<>&` + "\n\r\t\x00\u2028": []byte("6"),
		}
		for name, value := range want {
			t.renew(h, long, steps{name: value})
		}
		t.hasSteps(h.ID, want)
	}},
	{"steps that race with the settlement are all there or lost", func(t *storeTest) {
		for range 20 {
			c := claimOf(newOwner())
			h := holdOf(t.mustClaim(c))
			var lost atomic.Bool
			together(2, func(i int) {
				if i == 0 {
					lost.Store(t.store.Renew(t.ctx, h, long, steps{"charge": []byte("ch_1")}) != nil)
				} else if err := t.store.Settle(t.ctx, h, completed("made")); err != nil {
					t.Errorf("settle: %v", err)
				}
			})
			want := steps{"charge": []byte("ch_1")}
			if lost.Load() {
				want = nil
			}
			t.hasSteps(c.ID, want)
		}
	}},
}

func (t *storeTest) hasSteps(id onlyonce.ID, want steps) {
	t.Helper()
	if got := t.lookup(id).Steps; !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("the steps are %.200q, want %.200q", got, want)
	}
}

// endings are the settlements that leave a record.
var endings = []onlyonce.Settlement{
	completed("made"), failed("no stock"), failedForGood("no such article"), unknown("no response"),
	keeping(completed("made"), 0), keeping(unknown("no response"), 0),
}

// impossible are settlements that Settlement.Check rejects.
var impossible = []onlyonce.Settlement{
	{State: onlyonce.StateProcessing, Keep: long},
	{State: "released", Keep: long},
	{State: "Completed", Result: completed("made").Result, Keep: long},
	{State: "completed ", Keep: long},
	{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: math.MinInt32 - 1}, Keep: long},
	{State: onlyonce.StateFailed, Result: onlyonce.Result{Status: math.MaxInt32 + 1}, Keep: long},
	{State: onlyonce.StateUnknown, Result: onlyonce.Result{Status: 1 << 40}, Keep: long},
	{State: onlyonce.StateCompleted, Keep: -long},
	{State: onlyonce.StateRemembered, Keep: long},
	{State: onlyonce.StateCompleted, Result: onlyonce.Result{Keep: -long}, Keep: long},
	{State: onlyonce.StateFailed, Result: onlyonce.Result{Keep: short}, Keep: long},
	{State: onlyonce.StateUnknown, Result: onlyonce.Result{Keep: short}, Keep: long},
}

var settleRules = []rule{
	{"a settlement is what the record then says", func(t *storeTest) {
		for i, s := range endings {
			c := claimOf(string(rune('a' + i)))
			was := t.mustClaim(c)
			t.settle(holdOf(was), s)
			r := t.lookup(c.ID)
			want := was
			want.State, want.Result, want.Error, want.Final = s.State, s.Result, s.Error, s.Final
			want.SettledAt = r.SettledAt
			t.wantSame(want, r)
			t.sameEnd("KeepLeft", s.Keep, r.KeepLeft, 0)
			if r.LeaseLeft != 0 {
				t.Errorf("LeaseLeft is %v in state %s, want 0", r.LeaseLeft, r.State)
			}
		}
	}},
	{"a record says when it was settled, not when it was claimed", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		lapsed := t.awaitLapse(h)
		t.settle(h, completed("made"))
		if r := t.lookup(h.ID); !r.SettledAt.After(lapsed.CreatedAt) {
			t.Errorf("it was created at %v and settled at %v", lapsed.CreatedAt, r.SettledAt)
		}
	}},
	{"a claim is shown the settled record", func(t *storeTest) {
		for i, s := range []onlyonce.Settlement{completed("made"), failedForGood("no such article")} {
			c := claimOf(string(rune('a' + i)))
			r := t.complete(c, s)
			t.wantSame(r, t.claim(greedy(c)))
			t.wantSame(r, t.claim(newCaller(c)))
		}
	}},
	{"settling again changes nothing and is no error", func(t *storeTest) {
		for i, s := range endings {
			c := claimOf(string(rune('a' + i)))
			h := holdOf(t.complete(c, s))
			was := t.snap(c.ID)
			t.settle(h, s)
			t.unchanged(was)
		}
	}},
	{"settling again in another way changes nothing and is no error", func(t *storeTest) {
		for i, first := range endings {
			c := claimOf(string(rune('a' + i)))
			h := holdOf(t.complete(c, first))
			was := t.snap(c.ID)
			for _, second := range append(endings[:len(endings):len(endings)], onlyonce.Settlement{}, keeping(completed("other"), time.Hour)) {
				t.settle(h, second)
			}
			t.unchanged(was)
		}
	}},
	{"a settled command can't be renewed", func(t *storeTest) {
		for i, s := range endings {
			c := claimOf(string(rune('a' + i)))
			h := holdOf(t.complete(c, s))
			was := t.snap(c.ID)
			t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, time.Hour, map[string][]byte{"late": []byte("step")}))
			t.unchanged(was)
		}
	}},
	{"a settlement with which no attempt can end is rejected and changes nothing", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		was := t.snap(c.ID)
		for _, s := range impossible {
			t.rejected("settle", s, t.store.Settle(t.ctx, h, s))
		}
		t.unchanged(was)
		t.settle(h, completed("made"))
	}},
	{"one command's settlement leaves others alone", func(t *storeTest) {
		a, b := claimOf("a"), claimOf("b")
		t.mustClaim(b)
		was := t.snap(b.ID)
		h := holdOf(t.mustClaim(a))
		t.settle(h, completed("made"))
		h.ID = b.ID
		t.wantErr(onlyonce.ErrLost, "settle with another command's hold", t.store.Settle(t.ctx, h, completed("made")))
		t.unchanged(was)
	}},
	// A store may remember where it wrote a record, such as the ctid of its row.
	{"records are found by their attempts after they have grown and moved", func(t *storeTest) {
		held := make([]onlyonce.Record, 8)
		for i := range held {
			held[i] = t.mustClaim(claimOf(fmt.Sprint(i)))
		}
		for n := range 4 {
			together(len(held), func(i int) {
				if err := t.store.Renew(t.ctx, holdOf(held[i]), long, steps{fmt.Sprint(n): everyByte()}); err != nil {
					t.Errorf("renew: %v", err)
				}
			})
		}
		together(len(held), func(i int) {
			if err := t.store.Settle(t.ctx, holdOf(held[i]), completed(fmt.Sprint(i))); err != nil {
				t.Errorf("settle: %v", err)
			}
		})
		for i, was := range held {
			if r := t.lookup(was.ID); r.State != onlyonce.StateCompleted || string(r.Result.Body) != fmt.Sprint(i) || len(r.Steps) != 4 {
				t.Errorf("%s has the result %q and %d steps, want %d and 4", describe(r), r.Result.Body, len(r.Steps), i)
			}
		}
	}},
	{"the hold of a record that is gone reaches none that was written after it", func(t *storeTest) {
		var gone []onlyonce.Hold
		for i := range 8 {
			gone = append(gone, holdOf(t.mustClaim(claimOf(fmt.Sprint("gone ", i)))))
		}
		for i, h := range gone {
			if i%2 == 0 {
				t.settle(h, onlyonce.Settlement{})
			} else {
				t.settle(h, keeping(completed("made"), short))
			}
		}
		for _, h := range gone {
			t.awaitExpiry(h.ID)
		}
		if _, purges := t.store.(onlyonce.Purger); purges {
			t.purge(len(gone))
		}
		var there []snapshot
		for i := range gone {
			there = append(there, snapshotOf(t.mustClaim(claimOf(fmt.Sprint("there ", i)))))
		}
		together(len(gone), func(i int) {
			t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, gone[i], time.Hour, nil))
			t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, gone[i], completed("late")))
		})
		for _, was := range there {
			t.unchanged(was)
		}
	}},
}

var releaseRules = []rule{
	{"a released command is as if it had never been claimed", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.renew(h, long, map[string][]byte{"charge": []byte("ch_1")})
		t.settle(h, onlyonce.Settlement{})
		t.mustBeAbsent(c.ID)
		t.asNew(c.ID)
	}},
	{"a later attempt's release leaves nothing of the earlier ones either", func(t *storeTest) {
		c := claimOf("k")
		bad := failed("no stock")
		bad.Result = completed("out of stock").Result
		t.complete(c, bad)
		t.settle(holdOf(t.mustClaim(greedy(c))), onlyonce.Settlement{})
		t.mustBeAbsent(c.ID)
		t.asNew(c.ID)
	}},
	{"a release takes effect whatever else the settlement says", func(t *storeTest) {
		c := claimOf("k")
		s := completed("made")
		s.State = ""
		t.settle(holdOf(t.mustClaim(c)), s)
		t.mustBeAbsent(c.ID)
	}},
	{"a command can be released only once", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.settle(h, onlyonce.Settlement{})
		t.wantErr(onlyonce.ErrLost, "second release", t.store.Settle(t.ctx, h, onlyonce.Settlement{}))
		t.wantErr(onlyonce.ErrLost, "settlement after the release", t.store.Settle(t.ctx, h, completed("made")))
		t.mustBeAbsent(c.ID)
	}},
}

// rejected wants a settlement to be rejected with Settlement.Check's error, which is none
// of the errors about the command or the store.
func (t *storeTest) rejected(what string, s onlyonce.Settlement, err error) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s as %+v: no error", what, s)
	case !strings.Contains(err.Error(), s.Check().Error()):
		t.Errorf("%s as %+v: the error is %q, want %q", what, s, err, s.Check())
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrUnavailable), errors.Is(err, onlyonce.ErrUnknown):
		t.Errorf("%s as %+v: got error %v, want one of the caller's mistake only", what, s, err)
	}
}

// asNew wants a claim to get a command, even with another fingerprint, as if it had never
// been claimed.
func (t *storeTest) asNew(id onlyonce.ID) {
	t.Helper()
	c := claimOn(id)
	c.Fingerprint = onlyonce.Fingerprint([]byte("something else"))
	r := t.mustClaim(c)
	t.wantSame(onlyonce.Record{
		ID: id, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Owner: c.Owner,
		Attempt: 1, Fence: r.Fence, CreatedAt: r.CreatedAt,
	}, r)
	t.wantSame(r, t.lookup(id))
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

var resultRules = []rule{
	{"an empty result comes back", comesBack(onlyonce.Result{})},
	{"an empty body comes back", comesBack(onlyonce.Result{Status: 204, Body: []byte{}, Header: map[string][]string{}})},
	{"a body of every byte comes back", comesBack(onlyonce.Result{Status: 200, Body: everyByte()})},
	{"a body of 1 MiB comes back", comesBack(onlyonce.Result{Status: 200, Body: bytes.Repeat(everyByte(), 4096)})},
	{"a body that looks like SQL or JSON comes back", comesBack(onlyonce.Result{
		Body: []byte(`{"a": "';--\u0000", "b": null}\` + "\n%s %d $1 :a ? /* */ NULL\x00"),
	})},
	{"every status comes back", func(t *storeTest) {
		for _, status := range []int{0, 1, 100, 200, 201, 204, 299, 404, 418, 500, 599, 999, -1, math.MinInt32, math.MaxInt32} {
			t.comesBack(fmt.Sprint(status), onlyonce.Result{Status: status})
		}
	}},
	{"a header's values keep their order and number", comesBack(onlyonce.Result{Header: map[string][]string{
		"Link":  {"<b>", "<a>", "<b>", "<c>", "<a>"},
		"Vary":  {"Accept, Origin", "Accept"},
		"Empty": {""},
		"Blank": {"", " ", "", "\t"},
	}})},
	{"a traceparent comes back", comesBack(onlyonce.Result{Body: []byte("1"), Traceparent: traceparent})},
	{"a traceparent is no header", comesBack(onlyonce.Result{
		Header: map[string][]string{"Traceparent": {"of the response"}, "ETag": {"ä"}}, Traceparent: traceparent,
	})},
	{"a header's names keep their case", comesBack(onlyonce.Result{Header: map[string][]string{
		"ETag": {`"1"`}, "Etag": {`"2"`}, "etag": {`"3"`}, "X-Ünïcode": {"4"}, "": {"no name"},
	}})},
	{"a header's values keep every byte", func(t *storeTest) {
		header := map[string][]string{"All": {string(everyByte())}}
		for _, b := range everyByte() {
			header["Each"] = append(header["Each"], "a"+string([]byte{b})+"z")
		}
		t.comesBack("k", onlyonce.Result{Header: header})
	}},
	{"a header of many names and long values comes back", func(t *storeTest) {
		header := map[string][]string{}
		for i := range 200 {
			header[fmt.Sprintf("X-%d", i)] = []string{strings.Repeat("v", i), fmt.Sprint(i)}
		}
		header["Long"] = []string{strings.Repeat("long ", 8<<10)}
		t.comesBack("k", onlyonce.Result{Header: header})
	}},
	{"references and errors of any text come back", func(t *storeTest) {
		for i, text := range []string{
			"", " ", "order-1", "Ünïcode ✓ 🎉 日本語 \u202e\u0301", `'"\;--%_{}[]<>&$1?:a`, "a\nb\r\tc\x1b[0m\x7f",
			strings.Repeat("long ", 400), "NULL", "0", "trailing blank ",
		} {
			s := failedForGood(text)
			s.Result.Ref = text
			r := t.complete(claimOf(fmt.Sprint(i)), s)
			if r.Error != text || r.Result.Ref != text {
				t.Errorf("error %q and reference %q came back from %q", r.Error, r.Result.Ref, text)
			}
		}
	}},
	{"references and errors that are not text lose at most what is not", func(t *storeTest) {
		for i, text := range []string{"a\x00b", "\x00", "\xff", "a\xc3", "\xed\xa0\x80z", "caf\xe9\x00"} {
			s := failedForGood(text)
			s.Result.Ref = text
			r := t.complete(claimOf(fmt.Sprint(i)), s)
			if textOf(r.Error) != textOf(text) || textOf(r.Result.Ref) != textOf(text) {
				t.Errorf("error %q and reference %q came back from %q", r.Error, r.Result.Ref, text)
			}
		}
	}},
	{"a failure and an unknown outcome have results too", func(t *storeTest) {
		for i, s := range endings {
			s.Result = onlyonce.Result{Status: 409, Header: map[string][]string{"A": {"1"}}, Body: []byte("no"), Ref: "order-2"}
			t.sameResult(s.Result, t.complete(claimOf(fmt.Sprint(i)), s).Result)
		}
	}},
}

func comesBack(want onlyonce.Result) func(*storeTest) {
	return func(t *storeTest) { t.comesBack("k", want) }
}

// comesBack wants every method to return a result as it was settled.
func (t *storeTest) comesBack(key string, want onlyonce.Result) {
	t.Helper()
	c := claimOf(key)
	r := t.complete(c, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: want, Keep: long})
	t.sameResult(want, r.Result)
	t.sameResult(want, t.claim(newCaller(c)).Result)
	if lister, ok := t.store.(onlyonce.Lister); ok {
		for r, err := range lister.List(t.ctx, onlyonce.Filter{Key: key}) {
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			t.sameResult(want, r.Result)
		}
	}
}

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// textOf returns the part of a text that every store can keep: its valid characters
// other than NUL.
func textOf(s string) string {
	return strings.Map(func(r rune) rune {
		if r == 0 || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}
