package queuetest

import (
	"context"

	"github.com/onlyonce-go/onlyonce/outbox"
)

var byHand = outbox.Decision{Actor: "ada 'ö'", Reason: "ticket 7"}

// auditor returns the queue as an outbox.Auditor, or skips the rule.
func (t *queueTest) auditor() outbox.Auditor {
	t.Helper()
	a, ok := t.Queue.(outbox.Auditor)
	if !ok {
		t.Skip("the queue keeps no audit trail")
	}
	return a
}

// entries returns the newest entries of the audit trail, which may have others: nothing can
// empty it.
func (t *queueTest) entries(a outbox.Auditor, before int64, n int) []outbox.AuditEntry {
	t.Helper()
	list, err := a.AuditTrail(t.Context(), before, n)
	if t.must(err); len(list) > n {
		t.Fatalf("%d entries, want at most %d", len(list), n)
	}
	return list
}

// newest returns the number of the newest entry, or 0.
func (t *queueTest) newest(a outbox.Auditor) int64 {
	t.Helper()
	for _, e := range t.entries(a, 0, 1) {
		return e.Seq
	}
	return 0
}

var auditRules = []rule{
	{"a decision about a parked message is recorded with the message as it was", func(t *queueTest) {
		a := t.auditor()
		parked := t.parkOne()
		t.count(a.RequeueAudited(t.Context(), byHand, parked.Seq, parked.Seq+1000, parked.Seq))(1)
		e := t.entries(a, 0, 1)[0]
		m := e.Message
		if e.Action != outbox.ActionRequeue || e.Decision != byHand || m.Seq != parked.Seq || m.ID != parked.ID || m.Topic != parked.Topic || m.Key != "k" || m.Tenant != parked.Tenant || m.Attempts != 7 || m.Error != "no" {
			t.Errorf("the entry is %+v", e)
		}
		if since := e.At.Sub(parked.CreatedAt); since < 0 || since > patience {
			t.Errorf("the decision is from %v after the message was appended", since)
		}
		if list := t.want("two", 100, "a", "b", "other"); list[0].Attempts != 0 {
			t.Errorf("requeued as %+v", list[0])
		}
	}},
	{"the entry about a discarded message stays", func(t *queueTest) {
		a := t.auditor()
		parked := t.parkOne()
		t.count(a.DiscardAudited(t.Context(), byHand, parked.Seq))(1)
		if e := t.entries(a, 0, 1)[0]; e.Action != outbox.ActionDiscard || e.Message.ID != parked.ID {
			t.Errorf("the entry is %+v", e)
		}
		t.want("two", 100, "b", "other")
	}},
	{"the audit trail is listed newest first, page by page", func(t *queueTest) {
		a := t.auditor()
		t.add(message("", "a"), message("", "b"), message("", "c"))
		list := t.want("one", 3, "a", "b", "c")
		t.must(t.settle("one", outbox.Verdict{State: outbox.StateParked, Error: "no"}, list...))
		t.count(a.DiscardAudited(t.Context(), byHand, list[1].Seq, list[0].Seq))(2)
		t.count(a.RequeueAudited(t.Context(), byHand, list[2].Seq))(1)
		page := t.entries(a, 0, 2)
		rest := t.entries(a, page[1].Seq, 1)
		for i, e := range append(page, rest...) {
			if want := list[2-i]; e.Message.Seq != want.Seq {
				t.Errorf("entry %d is about %d, want %d", i, e.Message.Seq, want.Seq)
			}
		}
	}},
	{"what is not parked, and what nobody gave a reason for, is neither changed nor recorded", func(t *queueTest) {
		a := t.auditor()
		last := t.newest(a)
		parked := t.parkOne()
		for _, d := range []outbox.Decision{{}, {Actor: "ada"}, {Reason: "ticket 7"}, {Actor: "ada", Reason: "a\x00b"}} {
			for _, decide := range []decideFunc{a.RequeueAudited, a.DiscardAudited} {
				if n, err := decide(t.Context(), d, parked.Seq); n != 0 || err == nil {
					t.Errorf("%+v: %d, %v", d, n, err)
				}
			}
		}
		t.count(a.DiscardAudited(t.Context(), byHand, parked.Seq+1, parked.Seq+1000))(0)
		t.count(a.DiscardAudited(t.Context(), byHand))(0)
		if now := t.newest(a); now != last {
			t.Errorf("the newest entry is %d, and was %d", now, last)
		}
		t.wantLag(2, 1)
	}},
}

type decideFunc = func(context.Context, outbox.Decision, ...int64) (int, error)
