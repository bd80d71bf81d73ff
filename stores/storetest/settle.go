package storetest

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// endings are the settlements that leave a record.
var endings = []onlyonce.Settlement{
	completed("made"), failed("no stock"), failedForGood("no such article"), unknown("no answer"),
	keeping(completed("made"), 0), keeping(unknown("no answer"), 0),
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
			t.same(want, r)
			t.sameEnd("KeepLeft", s.Keep, r.KeepLeft, 0)
			if r.LeaseLeft != 0 {
				t.Errorf("LeaseLeft is %v in state %s, want 0", r.LeaseLeft, r.State)
			}
		}
	}},
	{"a claim is shown the settled record", func(t *storeTest) {
		for i, s := range []onlyonce.Settlement{completed("made"), failedForGood("no such article")} {
			c := claimOf(string(rune('a' + i)))
			r := t.complete(c, s)
			t.same(r, t.claim(greedy(c)))
			t.same(r, t.claim(newCaller(c)))
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

// rejected wants a settlement to be rejected with Settlement.Check's error, and with none
// of those which say what became of the command or the store.
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

// asNew wants a command to be given, even with another fingerprint, as if it
// had never been claimed.
func (t *storeTest) asNew(id onlyonce.ID) {
	t.Helper()
	c := claimOn(id)
	c.Fingerprint = onlyonce.Fingerprint([]byte("something else"))
	r := t.mustClaim(c)
	t.same(onlyonce.Record{
		ID: id, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Owner: c.Owner,
		Attempt: 1, Fence: r.Fence, CreatedAt: r.CreatedAt,
	}, r)
	t.same(r, t.lookup(id))
}
