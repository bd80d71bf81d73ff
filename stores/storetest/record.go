package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A snapshot is a record as it stood at an instant of the test's own clock.
type snapshot struct {
	onlyonce.Record
	at time.Time
}

func (t *storeTest) snap(id onlyonce.ID) snapshot {
	t.Helper()
	return snapshot{Record: t.lookup(id), at: time.Now()}
}

// unchanged wants the record to be what it was, with its lease and its keep.
func (t *storeTest) unchanged(was snapshot) {
	t.Helper()
	is := t.lookup(was.ID)
	t.same(was.Record, is)
	t.sameEnd("LeaseLeft", was.LeaseLeft, is.LeaseLeft, time.Since(was.at))
	t.sameEnd("KeepLeft", was.KeepLeft, is.KeepLeft, time.Since(was.at))
}

// sameEnd wants what was left of a lease or a keep to have shrunk only by the
// time that has passed.
func (t *storeTest) sameEnd(name string, was, is, passed time.Duration) {
	t.Helper()
	switch {
	case was <= 0 && is <= 0:
	case is > was+time.Millisecond:
		t.Errorf("%s went from %v up to %v", name, was, is)
	case is < was-passed-slack:
		t.Errorf("%s went from %v down to %v within %v", name, was, is, passed)
	}
}

// precedes reports that one time is before another also for a clock that tells
// milliseconds only: records of one of them are still created one after the other.
func precedes(one, other time.Time) bool { return one.Before(other.Truncate(time.Millisecond)) }

// same wants two readings of one record to agree, but for what is left of its
// lease and keep.
func (t *storeTest) same(want, got onlyonce.Record) {
	t.Helper()
	var diff []string
	field := func(name string, equal bool, want, got any) {
		if !equal {
			diff = append(diff, fmt.Sprintf("%s is %.80v, want %.80v", name, got, want))
		}
	}
	field("ID", want.ID == got.ID, want.ID, got.ID)
	field("State", want.State == got.State, want.State, got.State)
	field("Fingerprint", bytes.Equal(want.Fingerprint, got.Fingerprint), want.Fingerprint, got.Fingerprint)
	field("Owner", want.Owner == got.Owner, fmt.Sprintf("%x", want.Owner), fmt.Sprintf("%x", got.Owner))
	field("Attempt", want.Attempt == got.Attempt, want.Attempt, got.Attempt)
	field("Fence", want.Fence == got.Fence, want.Fence, got.Fence)
	field("Error", want.Error == got.Error, want.Error, got.Error)
	field("Final", want.Final == got.Final, want.Final, got.Final)
	field("Corrupt", want.Corrupt == got.Corrupt, want.Corrupt, got.Corrupt)
	field("Steps", maps.EqualFunc(want.Steps, got.Steps, bytes.Equal), want.Steps, got.Steps)
	field("CreatedAt", want.CreatedAt.Equal(got.CreatedAt), want.CreatedAt, got.CreatedAt)
	field("SettledAt", want.SettledAt.Equal(got.SettledAt), want.SettledAt, got.SettledAt)
	diff = append(diff, diffResult(want.Result, got.Result)...)
	if diff != nil {
		t.Errorf("the record differs: %s", strings.Join(diff, "; "))
	}
}

func (t *storeTest) sameResult(want, got onlyonce.Result) {
	t.Helper()
	if diff := diffResult(want, got); diff != nil {
		t.Errorf("the result differs: %s", strings.Join(diff, "; "))
	}
}

func diffResult(want, got onlyonce.Result) (diff []string) {
	if want.Status != got.Status {
		diff = append(diff, fmt.Sprintf("Status is %d, want %d", got.Status, want.Status))
	}
	if !maps.EqualFunc(want.Header, got.Header, slices.Equal) {
		diff = append(diff, fmt.Sprintf("Header is %.200q, want %.200q", got.Header, want.Header))
	}
	if !bytes.Equal(want.Body, got.Body) {
		diff = append(diff, fmt.Sprintf("Body is %.80q (%d bytes), want %.80q (%d)", got.Body, len(got.Body), want.Body, len(want.Body)))
	}
	if want.Ref != got.Ref {
		diff = append(diff, fmt.Sprintf("Ref is %.80q, want %.80q", got.Ref, want.Ref))
	}
	return diff
}

func describe(r onlyonce.Record) string {
	return fmt.Sprintf("{%q %s attempt %d fence %d owner %x lease left %v keep left %v}", r.ID, r.State, r.Attempt, r.Fence, r.Owner, r.LeaseLeft, r.KeepLeft)
}

// A recordState is one way a command can stand when someone asks for it.
type recordState struct {
	name  string
	reach func(t *storeTest, c onlyonce.Claim) onlyonce.Record
}

var recordStates = []recordState{
	{"running", func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.mustClaim(c) }},
	{"lapsed", func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.awaitLapse(holdOf(t.mustClaim(c))) }},
	{"completed", settledAs(completed("made"))},
	{"failed", settledAs(failed("no stock"))},
	{"failed for good", settledAs(failedForGood("no such article"))},
	{"unknown", settledAs(unknown("no answer"))},
}

func settledAs(s onlyonce.Settlement) func(*storeTest, onlyonce.Claim) onlyonce.Record {
	return func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.complete(c, s) }
}

// inEvery makes a rule for each standing.
func inEvery(name string, check func(t *storeTest, stand recordState)) []rule {
	var rules []rule
	for _, s := range recordStates {
		rules = append(rules, rule{name + s.name, func(t *storeTest) { check(t, s) }})
	}
	return rules
}
