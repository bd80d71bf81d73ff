package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// freeStandings are the states in which no attempt holds the command, and a person can decide
// how it ended.
func freeStandings() []recordState { return recordStates[1 : len(recordStates)-1] }

var resolveRules = slices.Concat(resolutions(), []rule{
	{"a command whose lease is alive can't be resolved", func(t *storeTest) {
		c := claimOf("k")
		r := t.mustClaim(c)
		was := t.snap(c.ID)
		t.wantErr(onlyonce.ErrInFlight, "resolve", t.resolve(c.ID, r.Fence, completed("by hand")))
		t.wantErr(onlyonce.ErrInFlight, "resolve by deletion", t.resolve(c.ID, r.Fence, onlyonce.Settlement{}))
		t.unchanged(was)
	}},
	{"a resolution with which no attempt can end is rejected and changes nothing", func(t *storeTest) {
		for i, stand := range freeStandings() {
			r := stand.enter(t, claimOf(fmt.Sprint(i)))
			was := t.snap(r.ID)
			for _, s := range impossible {
				t.rejected("resolve", s, t.resolve(r.ID, r.Fence, s))
			}
			t.unchanged(was)
		}
	}},
	{"a command that is not there can't be resolved", func(t *storeTest) {
		t.wantErr(onlyonce.ErrNotFound, "resolve", t.resolve(idOf("k"), 1, completed("by hand")))
		t.mustBeAbsent(idOf("k"))
	}},
	{"an expired command can't be resolved", func(t *storeTest) {
		c := claimOf("k")
		r := t.mustClaim(c)
		t.settle(holdOf(r), keeping(unknown("no response"), short))
		t.awaitExpiry(c.ID)
		t.wantErr(onlyonce.ErrNotFound, "resolve", t.resolve(c.ID, r.Fence, completed("by hand")))
		t.mustBeAbsent(c.ID)
	}},
	{"a command that another attempt took over meanwhile is not resolved", func(t *storeTest) {
		c := claimOf("k")
		seen := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.complete(greedy(c), unknown("no response either"))
		was := t.snap(c.ID)
		t.wantErr(onlyonce.ErrLost, "resolve", t.resolve(c.ID, seen.Fence, completed("by hand")))
		t.unchanged(was)
	}},
	{"a command whose attempt ended late is not resolved by a person who saw it lapsed", func(t *storeTest) {
		for i, late := range endings {
			for j, decision := range append([]onlyonce.Settlement{{}}, endings...) {
				c := claimOf(fmt.Sprint(i, " ", j))
				h := holdOf(t.mustClaim(c))
				seen := t.awaitLapse(h)
				t.settle(h, late)
				was := t.snap(c.ID)
				t.wantErr(onlyonce.ErrLost, "resolve", t.store.(onlyonce.Resolver).Resolve(t.ctx, seen, decision))
				t.unchanged(was)
				t.resolved(was.Record, failedForGood("on second thought"))
			}
		}
	}},
	{"either an attempt that ends late or a person's decision is rejected", func(t *storeTest) {
		for i := range duels {
			c := claimOf(fmt.Sprint(i))
			h := holdOf(t.mustClaim(c))
			seen := t.awaitLapse(h)
			decision := []onlyonce.Settlement{{}, failedForGood("by hand")}[i%2]
			var settled, resolved error
			acts := []func(){
				func() { settled = t.store.Settle(t.ctx, h, completed("made")) },
				func() { resolved = t.store.(onlyonce.Resolver).Resolve(t.ctx, seen, decision) },
			}
			together(2, func(i int) { acts[i]() })
			if (settled == nil) == (resolved == nil) {
				t.Errorf("the settlement got the error %v and the resolution %v, want one of them to be rejected", settled, resolved)
			}
			if settled == nil {
				if r := t.lookup(c.ID); string(r.Result.Body) != "made" {
					t.Errorf("the attempt completed, and the record is %s", describe(r))
				}
			}
		}
	}},
	{"a resolved command is lost to the attempt that left it", func(t *storeTest) {
		c := claimOf("k")
		r := t.awaitLapse(holdOf(t.mustClaim(c)))
		t.resolved(r, failedForGood("by hand"))
		t.mustBeLost(holdOf(r))
	}},
	{"a resolved command is replayed to the first caller, too", func(t *storeTest) {
		c := claimOf("k")
		t.resolved(t.awaitLapse(holdOf(t.mustClaim(c))), completed("by hand"))
		r := t.claim(c)
		if r.Owner == c.Owner || string(r.Result.Body) != "by hand" {
			t.Errorf("the claim got %s with %q", describe(r), r.Result.Body)
		}
	}},
	{"a command that was resolved as failed can be retried", func(t *storeTest) {
		c := claimOf("k")
		h := holdOf(t.mustClaim(c))
		t.renew(h, long, steps{"charge": []byte("ch_1")})
		r := t.awaitLapse(h)
		t.resolved(r, failed("by hand"))
		next := t.mustClaim(greedy(c))
		if next.Attempt != 2 || next.Fence <= r.Fence {
			t.Errorf("the retry is %s, after fence %d", describe(next), r.Fence)
		}
		t.hasSteps(c.ID, steps{"charge": []byte("ch_1")})
	}},
	{"a command that was deleted by hand begins anew with a higher fence", func(t *storeTest) {
		for i, stand := range freeStandings() {
			c := claimOf(fmt.Sprint(i))
			r := stand.enter(t, c)
			if err := t.resolve(c.ID, r.Fence, onlyonce.Settlement{}); err != nil {
				t.Fatalf("resolve when it is %s: %v", stand.name, err)
			}
			t.mustBeAbsent(c.ID)
			t.asNew(c.ID)
			if next := t.lookup(c.ID); next.Fence <= r.Fence {
				t.Errorf("the fence went from %d to %d", r.Fence, next.Fence)
			}
		}
	}},
	{"a person who saw a record before it was resolved must read it again", func(t *storeTest) {
		for i, stand := range freeStandings() {
			for j, s := range endings {
				c := claimOf(fmt.Sprint(i, " ", j))
				seen := stand.enter(t, c)
				t.resolved(seen, s)
				was := t.snap(c.ID)
				t.wantErr(onlyonce.ErrLost, "resolve again", t.resolve(c.ID, seen.Fence, s))
				t.wantErr(onlyonce.ErrLost, "delete after a resolution", t.resolve(c.ID, seen.Fence, onlyonce.Settlement{}))
				t.unchanged(was)
				t.resolved(was.Record, failedForGood("on second thought"))
			}
		}
	}},
	{"one of two people who resolve the same state of a record is rejected", func(t *storeTest) {
		for i := range duels {
			r := t.complete(claimOf(fmt.Sprint(i)), unknown("no response"))
			var errs [2]error
			together(2, func(i int) { errs[i] = t.resolve(r.ID, r.Fence, endings[i]) })
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Errorf("the resolutions got the errors %v and %v, want one of them to be rejected", errs[0], errs[1])
			}
		}
	}},
	{"a claim in two steps takes nothing that was resolved between them", func(t *storeTest) {
		for i, stand := range freeStandings() {
			for j, s := range []onlyonce.Settlement{completed("by hand"), failedForGood("by hand")} {
				c := claimOf(fmt.Sprint(i, " ", j))
				t.resolved(stand.enter(t, c), failed("by hand, to be retried"))
				first := newCaller(c)
				t.resolved(t.claim(first), s)
				first.TakeUnknown, first.RetryFailed = true, true
				t.mustReject(first, t.snap(c.ID))
			}
		}
	}},
	{"a command that a person deleted is lost to every caller that saw it", func(t *storeTest) {
		for i, stand := range freeStandings() {
			c := claimOf(fmt.Sprint(i))
			seen := stand.enter(t, c)
			if err := t.resolve(c.ID, seen.Fence, onlyonce.Settlement{}); err != nil {
				t.Fatalf("resolve when it is %s: %v", stand.name, err)
			}
			t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, holdOf(seen), long, nil))
			t.wantErr(onlyonce.ErrLost, "settle", t.store.Settle(t.ctx, holdOf(seen), completed("too late")))
			t.wantErr(onlyonce.ErrNotFound, "resolve", t.resolve(c.ID, seen.Fence, completed("by hand")))
			t.mustBeAbsent(c.ID)
		}
	}},
	{"a resolution's keep ends too", func(t *storeTest) {
		for i, keep := range []time.Duration{0, long} {
			c := claimOf(fmt.Sprint(i))
			r := t.complete(c, keeping(unknown("no response"), keep))
			if err := t.resolve(c.ID, r.Fence, keeping(completed("by hand"), short)); err != nil {
				t.Fatalf("resolve: %v", err)
			}
			t.awaitExpiry(c.ID)
			if p, ok := t.store.(onlyonce.Purger); ok {
				if n, err := p.Purge(t.ctx, 10); n != 1 || err != nil {
					t.Errorf("purged %d with error %v, want 1", n, err)
				}
			}
			t.asNew(c.ID)
		}
	}},
	{"a resolution's keep replaces the earlier one", func(t *storeTest) {
		c, clock := claimOf("k"), claimOf("clock")
		h := holdOf(t.mustClaim(clock))
		t.until("it is resolved before it expires", func() bool {
			held := holdOf(t.mustClaim(greedy(c)))
			t.settle(held, keeping(unknown("no response"), 10*short))
			return t.resolve(c.ID, held.Fence, completed("by hand")) == nil
		})
		t.settle(h, keeping(completed(""), 10*short))
		t.awaitExpiry(clock.ID)
		if p, ok := t.store.(onlyonce.Purger); ok {
			if n, err := p.Purge(t.ctx, 10); n != 1 || err != nil {
				t.Errorf("purged %d with error %v, want only the other command", n, err)
			}
		}
		t.sameEnd("KeepLeft", long, t.lookup(c.ID).KeepLeft, 0)
	}},
	{"a resolution and a take-over do not both happen", func(t *storeTest) {
		t.duel(func(r onlyonce.Record) error {
			return inFlightIsLost(t.resolve(r.ID, r.Fence, failedForGood("by hand")))
		})
	}},
})

func resolutions() []rule {
	var rules []rule
	for _, stand := range freeStandings() {
		rules = append(rules,
			rule{"a person can decide about a command that is " + stand.name, func(t *storeTest) {
				for i, s := range endings {
					t.resolved(stand.enter(t, claimOf(fmt.Sprint(i))), s)
				}
			}},
			rule{"another fence resolves nothing when the command is " + stand.name, func(t *storeTest) {
				r := stand.enter(t, claimOf("k"))
				was := t.snap(r.ID)
				for _, fence := range []int64{r.Fence - 1, r.Fence + 1, 0} {
					t.wantErr(onlyonce.ErrLost, "resolve", t.resolve(r.ID, fence, completed("by hand")))
					t.wantErr(onlyonce.ErrLost, "resolve by deletion", t.resolve(r.ID, fence, onlyonce.Settlement{}))
				}
				t.unchanged(was)
			}})
	}
	return rules
}

func (t *storeTest) resolve(id onlyonce.ID, fence int64, s onlyonce.Settlement) error {
	seen, err := t.store.Lookup(t.ctx, id)
	if err != nil && !errors.Is(err, onlyonce.ErrNotFound) {
		return err
	}
	seen.ID, seen.Fence = id, fence
	return t.store.(onlyonce.Resolver).Resolve(t.ctx, seen, s)
}

// resolved resolves r with s, and wants the record to have the outcome s, a new owner
// and a higher fence, and otherwise to be equal to r.
func (t *storeTest) resolved(r onlyonce.Record, s onlyonce.Settlement) {
	t.Helper()
	t.resolvedBy(r, s, func() error { return t.resolve(r.ID, r.Fence, s) })
}

// resolvedBy is resolved for a call that resolves r with s.
func (t *storeTest) resolvedBy(r onlyonce.Record, s onlyonce.Settlement, resolve func() error) {
	t.Helper()
	if err := resolve(); err != nil {
		t.Fatalf("resolve: %v", err)
	}
	got := t.lookup(r.ID)
	if got.Owner == r.Owner || len(got.Owner) != len(newOwner()) {
		t.Errorf("the record's owner is %x, want a new one; it was %x", got.Owner, r.Owner)
	}
	want := r
	want.State, want.Result, want.Error, want.Final = s.State, s.Result, s.Error, s.Final
	want.Owner, want.Fence, want.SettledAt = got.Owner, got.Fence, got.SettledAt
	t.wantSame(want, got)
	t.sameEnd("KeepLeft", s.Keep, got.KeepLeft, 0)
	if precedes(got.SettledAt, r.CreatedAt) || got.Fence <= r.Fence {
		t.Errorf("settled at %v with fence %d, want after %v and above %d", got.SettledAt, got.Fence, r.CreatedAt, r.Fence)
	}
}

// inFlightIsLost treats both rejections as one: a take-over that came first changes the
// fence and makes the lease alive.
func inFlightIsLost(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", onlyonce.ErrLost, err)
	}
	return nil
}

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
