package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var auditRules = []rule{
	{"every decision is recorded with what was before and after", func(t *storeTest) {
		for _, stand := range freeStandings() {
			for _, s := range append([]onlyonce.Settlement{{}}, endings...) {
				r := stand.enter(t, freshClaim())
				before := t.storeTime()
				t.mustAudit(r, s, byHand)
				t.recorded(r.ID, entryOf(r, s, byHand))
				if at := t.auditTrail(r.ID)[0].At; precedes(at, before) || precedes(t.storeTime(), at) {
					t.Errorf("decided at %v, want a time of the store's clock after %v", at, before)
				}
			}
		}
	}},
	{"an audited decision has the same effect as another", func(t *storeTest) {
		for _, stand := range freeStandings() {
			for _, s := range endings {
				r := stand.enter(t, freshClaim())
				t.resolvedBy(r, s, func() error { return t.audit(r, s, byHand) })
			}
			r := stand.enter(t, freshClaim())
			t.mustAudit(r, onlyonce.Settlement{}, byHand)
			t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, holdOf(r), completed("too late")))
			t.asNew(r.ID)
		}
	}},
	{"decisions are listed in their order, and only those about the command", func(t *storeTest) {
		var want []onlyonce.AuditEntry
		other := t.complete(freshClaim(), unknown("no response"))
		t.mustAudit(other, completed("by hand"), byHand)
		r := t.complete(freshClaim(), unknown("no response"))
		for i, s := range []onlyonce.Settlement{unknown("look again"), failed("not there"), completed("there"), {}} {
			d := onlyonce.Decision{Actor: fmt.Sprint("operator ", i), Reason: fmt.Sprint("ticket ", i)}
			t.mustAudit(r, s, d)
			want = append(want, entryOf(r, s, d))
			if s.State != "" {
				r = t.lookup(r.ID)
			}
		}
		t.recorded(r.ID, want...)
		t.recorded(freshClaim().ID)
	}},
	{"entries outlive the record and the command's next one", func(t *storeTest) {
		c := freshClaim()
		r := t.complete(c, unknown("no response"))
		t.mustAudit(r, keeping(completed("by hand"), short), byHand)
		t.awaitExpiry(c.ID)
		if p, ok := t.store.(onlyonce.Purger); ok {
			if _, err := p.Purge(t.ctx, 10); err != nil {
				t.Fatal(err)
			}
		}
		t.recorded(c.ID, entryOf(r, keeping(completed("by hand"), short), byHand))
		next := t.complete(newCaller(c), unknown("no response"))
		t.mustAudit(next, onlyonce.Settlement{}, byHand)
		t.recorded(c.ID, entryOf(r, keeping(completed("by hand"), short), byHand), entryOf(next, onlyonce.Settlement{}, byHand))
	}},
	{"a decision that takes no effect is not recorded", func(t *storeTest) {
		none := freshClaim().ID
		t.wantErr(onlyonce.ErrNotFound, "resolve", t.audit(onlyonce.Record{ID: none, Fence: 1, State: onlyonce.StateUnknown}, completed("by hand"), byHand))
		t.recorded(none)
		running := t.mustClaim(freshClaim())
		t.wantErr(onlyonce.ErrInFlight, "resolve", t.audit(running, completed("by hand"), byHand))
		t.recorded(running.ID)
		seen := t.complete(freshClaim(), unknown("no response"))
		t.mustClaim(greedy(claimOn(seen.ID)))
		t.awaitLapse(holdOf(t.lookup(seen.ID)))
		for _, s := range append([]onlyonce.Settlement{{}}, endings...) {
			t.wantErr(onlyonce.ErrLost, "resolve", t.audit(seen, s, byHand))
		}
		for _, s := range impossible {
			t.rejected("resolve", s, t.audit(t.lookup(seen.ID), s, byHand))
		}
		t.recorded(seen.ID)
	}},
	{"of two decisions, one takes effect and is recorded", func(t *storeTest) {
		for range duels {
			r := t.complete(freshClaim(), unknown("no response"))
			var errs [2]error
			decisions := []onlyonce.Settlement{completed("by hand"), {}}
			together(2, func(i int) { errs[i] = t.audit(r, decisions[i], byHand) })
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("the decisions ended with %v and %v, want one success", errs[0], errs[1])
			}
			winner := 0
			if errs[0] != nil {
				winner = 1
			}
			if err := errs[1-winner]; !errors.Is(err, onlyonce.ErrLost) && !errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("the other decision ended with %v", err)
			}
			t.recorded(r.ID, entryOf(r, decisions[winner], byHand))
		}
	}},
	{"a decision without a person or a reason is rejected and changes nothing", func(t *storeTest) {
		r := t.complete(freshClaim(), unknown("no response"))
		was := t.snap(r.ID)
		for _, d := range []onlyonce.Decision{
			{},
			{Actor: "ada"},
			{Reason: "ticket 7"},
			{Actor: "ada", Reason: "a\x00"},
			{Actor: "\xff", Reason: "ticket 7"},
			{Actor: strings.Repeat("a", 256), Reason: "ticket 7"},
			{Actor: "ada", Reason: strings.Repeat("r", 2049)},
		} {
			if err := t.audit(r, completed("by hand"), d); err == nil || errors.Is(err, onlyonce.ErrLost) {
				t.Errorf("a decision of %.20q because of %.20q: got error %v, want a rejection", d.Actor, d.Reason, err)
			}
		}
		t.unchanged(was)
		t.recorded(r.ID)
	}},
	{"every text of an entry is kept as it is", func(t *storeTest) {
		for _, id := range []onlyonce.ID{{Tenant: "\x00\xff", Operation: `\x41`, Key: newOwner()}, {Key: "ключ 🔑 " + newOwner()}} {
			s := unknown("bytes \xff\x00 and \\x41")
			s.Result.Ref = "ref \xfe\x00"
			r := t.complete(claimOn(id), s)
			d := onlyonce.Decision{Actor: `\x41 ` + strings.Repeat("ä", 125), Reason: "line\nline\t🔑 " + strings.Repeat("r", 2000)}
			t.mustAudit(r, s, d)
			t.recorded(id, entryOf(r, s, d))
		}
	}},
}

var byHand = onlyonce.Decision{Actor: "ada", Reason: "ticket 7"}

// audit resolves a record as a person who saw it does.
func (t *storeTest) audit(seen onlyonce.Record, s onlyonce.Settlement, d onlyonce.Decision) error {
	return t.store.(onlyonce.Auditor).ResolveAudited(t.ctx, seen, s, d)
}

func (t *storeTest) mustAudit(seen onlyonce.Record, s onlyonce.Settlement, d onlyonce.Decision) {
	t.Helper()
	if err := t.audit(seen, s, d); err != nil {
		t.Fatalf("resolve: %v", err)
	}
}

func (t *storeTest) auditTrail(id onlyonce.ID) []onlyonce.AuditEntry {
	t.Helper()
	entries, err := t.store.(onlyonce.Auditor).AuditTrail(t.ctx, id)
	if err != nil {
		t.Fatalf("audit trail of %q: %v", id, err)
	}
	return entries
}

// storeTime returns a time of the store's clock that is not in the future.
func (t *storeTest) storeTime() time.Time {
	t.Helper()
	return t.mustClaim(freshClaim()).CreatedAt
}

// freshClaim returns a claim on a command that no test has had before: a store that is emptied
// between tests keeps its audit trail.
func freshClaim() onlyonce.Claim { return claimOf(fmt.Sprintf("%x", newOwner())) }

// entryOf returns the entry of a decision about r, without its time.
func entryOf(r onlyonce.Record, s onlyonce.Settlement, d onlyonce.Decision) onlyonce.AuditEntry {
	s.Result.Header, s.Result.Body = nil, nil
	if s.State != "" && s.Keep == 0 {
		s.Keep = onlyonce.KeepForever
	}
	return onlyonce.AuditEntry{ID: r.ID, Decision: d, After: s, Before: onlyonce.Record{
		ID: r.ID, State: r.State, Attempt: r.Attempt, Fence: r.Fence, Error: r.Error, Final: r.Final, Corrupt: r.Corrupt,
		Result: onlyonce.Result{Status: r.Result.Status, Ref: r.Result.Ref},
	}}
}

// recorded wants the audit trail of a command to be these entries.
func (t *storeTest) recorded(id onlyonce.ID, want ...onlyonce.AuditEntry) {
	t.Helper()
	got := t.auditTrail(id)
	for i := range got {
		got[i].At = time.Time{}
	}
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("the audit trail of %q is %+v, want %+v", id, got, want)
	}
}
