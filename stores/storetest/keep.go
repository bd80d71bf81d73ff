package storetest

import (
	"github.com/onlyonce-go/onlyonce"
)

var keepRules = []rule{
	{"a settled record is gone when its keep ends", func(t *trial) {
		for i, s := range []onlyonce.Settlement{completed("made"), failed("no stock"), failedForGood("no such article"), unknown("no answer")} {
			c := claimOf(string(rune('a' + i)))
			t.settle(holdOf(t.given(c)), keeping(s, short))
			t.gone(c.ID)
		}
	}},
	{"an expired command begins anew", func(t *trial) {
		c := claimOf("k")
		was := t.given(c)
		t.renew(holdOf(was), long, map[string][]byte{"charge": []byte("ch_1")})
		t.settle(holdOf(was), keeping(completed("made"), short))
		t.gone(c.ID)
		t.asNew(c.ID)
		if r := t.lookup(c.ID); !r.CreatedAt.After(was.CreatedAt) {
			t.Errorf("it was created at %v, not after the expired record's %v", r.CreatedAt, was.CreatedAt)
		}
	}},
	{"an expired failure begins anew, whatever the claim takes", func(t *trial) {
		c := claimOf("k")
		t.settle(holdOf(t.given(c)), keeping(failed("no stock"), short))
		t.gone(c.ID)
		t.asNew(c.ID)
	}},
	{"an expired command is nobody's", func(t *trial) {
		c := claimOf("k")
		h := holdOf(t.given(c))
		t.settle(h, keeping(completed("made"), short))
		t.gone(c.ID)
		t.wants(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, h, long, nil))
		t.wants(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, h, completed("made")))
		t.absent(c.ID)
	}},
	{"an expired command is lost to who settled it once another has it", func(t *trial) {
		c := claimOf("k")
		h := holdOf(t.given(c))
		t.settle(h, keeping(completed("made"), short))
		t.gone(c.ID)
		t.given(again(c))
		t.lost(h)
	}},
	{"a record that is kept for good does not expire", func(t *trial) {
		for i, s := range []onlyonce.Settlement{completed("made"), unknown("no answer")} {
			c := claimOf(string(rune('a' + i)))
			t.settle(holdOf(t.given(c)), keeping(s, 0))
			if left := t.lookup(c.ID).KeepLeft; left != 0 {
				t.Errorf("KeepLeft is %v, want 0", left)
			}
			t.pass()
			t.refused(again(c), t.snap(c.ID))
		}
	}},
	{"looking and asking do not prolong a keep", func(t *trial) {
		c := claimOf("k")
		t.settle(holdOf(t.given(c)), keeping(completed("made"), short))
		t.until("the record expires", func() bool { return t.claim(again(c)).State == onlyonce.StateProcessing })
	}},
	{"a command that is retried does not expire with the failed attempt's keep", func(t *trial) {
		const keep = 10 * short
		c, clock := claimOf("k"), claimOf("clock")
		h := holdOf(t.given(clock))
		t.settle(holdOf(t.given(c)), keeping(failed("no stock"), keep))
		r := t.given(eager(c))
		t.settle(h, keeping(completed(""), keep))
		t.gone(clock.ID)
		t.same(r, t.lookup(c.ID))
		t.settle(holdOf(r), completed("made"))
	}},
	{"a command whose lease lapsed does not expire", func(t *trial) {
		c := claimOf("k")
		r := t.lapsed(holdOf(t.given(c)))
		t.pass()
		t.same(r, t.lookup(c.ID))
	}},
}

// pass waits until a keep of its own, a short one, has ended.
func (t *trial) pass() {
	t.Helper()
	c := claimOf("a short while " + newOwner())
	t.settle(holdOf(t.given(c)), keeping(completed(""), short))
	t.gone(c.ID)
}
