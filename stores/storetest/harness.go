package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

const (
	long     = 10 * time.Minute      // a lease or a keep that does not end during a test, for the test ends before
	longest  = 5 * time.Minute       // how long a test may take
	short    = 20 * time.Millisecond // a lease or a keep that ends soon
	patience = time.Minute           // how long anything may take before it counts as never
	slack    = time.Minute           // how far two clocks may come apart meanwhile
	poll     = time.Millisecond      // how often a condition is looked at
)

// A storeTest is one rule's test of one store.
type storeTest struct {
	*testing.T
	store onlyonce.Store
	ctx   context.Context
}

func newStoreTest(t *testing.T, s onlyonce.Store) *storeTest {
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	return &storeTest{T: t, store: s, ctx: ctx}
}

func idOf(key string) onlyonce.ID {
	return onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: key}
}

// claimOf returns a claim that takes over no command.
func claimOf(key string) onlyonce.Claim { return claimOn(idOf(key)) }

func claimOn(id onlyonce.ID) onlyonce.Claim {
	return onlyonce.Claim{ID: id, Owner: newOwner(), Fingerprint: onlyonce.Fingerprint([]byte("an order")), Lease: long}
}

// newCaller returns the claim of another caller with the same request.
func newCaller(c onlyonce.Claim) onlyonce.Claim {
	c.Owner = newOwner()
	return c
}

// greedy returns the claim of another caller that takes over every command it can.
func greedy(c onlyonce.Claim) onlyonce.Claim {
	c = newCaller(c)
	c.RetryFailed, c.TakeUnknown = true, true
	return c
}

func newOwner() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return string(b[:])
}

func holdOf(r onlyonce.Record) onlyonce.Hold {
	return onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
}

func completed(body string) onlyonce.Settlement {
	return onlyonce.Settlement{
		State:  onlyonce.StateCompleted,
		Result: onlyonce.Result{Status: 201, Header: map[string][]string{"Location": {"/orders/1"}}, Body: []byte(body), Ref: "order-1"},
		Keep:   long,
	}
}

func failed(text string) onlyonce.Settlement {
	return onlyonce.Settlement{State: onlyonce.StateFailed, Error: text, Keep: long}
}

func failedForGood(text string) onlyonce.Settlement {
	return onlyonce.Settlement{State: onlyonce.StateFailed, Error: text, Final: true, Keep: long}
}

func unknown(text string) onlyonce.Settlement {
	return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: text, Keep: long}
}

// keeping returns s with another Keep.
func keeping(s onlyonce.Settlement, keep time.Duration) onlyonce.Settlement {
	s.Keep = keep
	return s
}

func (t *storeTest) claim(c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r, err := t.store.Claim(t.ctx, c)
	if err != nil {
		t.Fatalf("claim of %q: %v", c.ID, err)
	}
	if r.ID != c.ID {
		t.Fatalf("claim of %q returned the record of %q", c.ID, r.ID)
	}
	return r
}

// mustClaim claims, and wants to hold the command.
func (t *storeTest) mustClaim(c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r := t.claim(c)
	if r.Owner != c.Owner || r.State != onlyonce.StateProcessing {
		t.Fatalf("claim was not granted: the record is %s", describe(r))
	}
	return r
}

// mustReject claims, and wants the command to stay unchanged, in the state s.
func (t *storeTest) mustReject(c onlyonce.Claim, s snapshot) {
	t.Helper()
	r := t.claim(c)
	if r.Owner == c.Owner {
		t.Errorf("claim was granted: the record is %s", describe(r))
	}
	t.wantSame(s.Record, r)
	t.unchanged(s)
}

func (t *storeTest) settle(h onlyonce.Hold, s onlyonce.Settlement) {
	t.Helper()
	if err := t.store.Settle(t.ctx, h, s); err != nil {
		t.Fatalf("settle as %q: %v", s.State, err)
	}
}

func (t *storeTest) renew(h onlyonce.Hold, lease time.Duration, steps map[string][]byte) {
	t.Helper()
	if err := t.store.Renew(t.ctx, h, lease, steps); err != nil {
		t.Fatalf("renew for %v: %v", lease, err)
	}
}

func (t *storeTest) lookup(id onlyonce.ID) onlyonce.Record {
	t.Helper()
	r, err := t.store.Lookup(t.ctx, id)
	if err != nil {
		t.Fatalf("lookup of %q: %v", id, err)
	}
	if r.ID != id {
		t.Fatalf("lookup of %q returned the record of %q", id, r.ID)
	}
	return r
}

func (t *storeTest) mustBeAbsent(id onlyonce.ID) {
	t.Helper()
	if r, err := t.store.Lookup(t.ctx, id); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup of %q: got %s and error %v, want ErrNotFound", id, describe(r), err)
	}
}

// complete claims and settles, and returns the record.
func (t *storeTest) complete(c onlyonce.Claim, s onlyonce.Settlement) onlyonce.Record {
	t.Helper()
	t.settle(holdOf(t.mustClaim(c)), s)
	return t.lookup(c.ID)
}

// awaitLapse makes the lease of a hold end, and returns the record.
func (t *storeTest) awaitLapse(h onlyonce.Hold) onlyonce.Record {
	t.Helper()
	t.renew(h, short, nil)
	var r onlyonce.Record
	t.until("the lease lapses", func() bool {
		r = t.lookup(h.ID)
		return r.LeaseLeft <= 0
	})
	return r
}

// awaitExpiry waits until a record has expired.
func (t *storeTest) awaitExpiry(id onlyonce.ID) {
	t.Helper()
	t.until("the record expires", func() bool {
		_, err := t.store.Lookup(t.ctx, id)
		return errors.Is(err, onlyonce.ErrNotFound)
	})
}

// until waits until a condition holds.
func (t *storeTest) until(what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(poll) {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not happen within %v", what, patience)
		}
	}
}

// wantErr wants a call to be rejected with an error that is want.
func (t *storeTest) wantErr(want error, what string, err error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// together runs fn in n goroutines that start at once, and waits for them.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

// A snapshot is a record as it was at a time of the test's own clock.
type snapshot struct {
	onlyonce.Record
	at time.Time
}

func (t *storeTest) snap(id onlyonce.ID) snapshot {
	t.Helper()
	return snapshot{Record: t.lookup(id), at: time.Now()}
}

// unchanged wants the record, its lease and its keep to be unchanged.
func (t *storeTest) unchanged(was snapshot) {
	t.Helper()
	is := t.lookup(was.ID)
	t.wantSame(was.Record, is)
	t.sameEnd("LeaseLeft", was.LeaseLeft, is.LeaseLeft, time.Since(was.at))
	t.sameEnd("KeepLeft", was.KeepLeft, is.KeepLeft, time.Since(was.at))
	t.sameEnd("Result.Keep", was.Result.Keep, is.Result.Keep, time.Since(was.at))
}

// sameEnd wants the rest of a lease or a keep to have become shorter only by the time
// that has passed.
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

// precedes reports whether one time is before another even for a clock with a
// resolution of milliseconds.
func precedes(one, other time.Time) bool { return one.Before(other.Truncate(time.Millisecond)) }

// wantSame wants two readings of one record to be equal, except for the rest of its lease
// and keep.
func (t *storeTest) wantSame(want, got onlyonce.Record) {
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
	field("Summary", want.Summary == got.Summary, want.Summary, got.Summary)
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
	if want.Traceparent != got.Traceparent {
		diff = append(diff, fmt.Sprintf("Traceparent is %.80q, want %.80q", got.Traceparent, want.Traceparent))
	}
	return diff
}

func describe(r onlyonce.Record) string {
	return fmt.Sprintf("{%q %s attempt %d fence %d owner %x lease left %v keep left %v}", r.ID, r.State, r.Attempt, r.Fence, r.Owner, r.LeaseLeft, r.KeepLeft)
}

// A recordState is one of the states in which a claim can find a command.
type recordState struct {
	name  string
	enter func(t *storeTest, c onlyonce.Claim) onlyonce.Record
}

var recordStates = []recordState{
	{"running", func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.mustClaim(c) }},
	{"lapsed", func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.awaitLapse(holdOf(t.mustClaim(c))) }},
	{"completed", settledAs(completed("made"))},
	{"failed", settledAs(failed("no stock"))},
	{"failed for good", settledAs(failedForGood("no such article"))},
	{"unknown", settledAs(unknown("no response"))},
	{"remembered", func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.remembered(c, completed("made")) }},
}

func settledAs(s onlyonce.Settlement) func(*storeTest, onlyonce.Claim) onlyonce.Record {
	return func(t *storeTest, c onlyonce.Claim) onlyonce.Record { return t.complete(c, s) }
}

// inEvery returns a rule for each state.
func inEvery(name string, check func(t *storeTest, stand recordState)) []rule {
	var rules []rule
	for _, s := range recordStates {
		rules = append(rules, rule{name + s.name, func(t *storeTest) { check(t, s) }})
	}
	return rules
}
