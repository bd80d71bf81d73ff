package storetest

import (
	"context"
	"crypto/rand"
	"errors"
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

// claimOf returns a claim that takes nothing from anyone.
func claimOf(key string) onlyonce.Claim { return claimOn(idOf(key)) }

func claimOn(id onlyonce.ID) onlyonce.Claim {
	return onlyonce.Claim{ID: id, Owner: newOwner(), Fingerprint: onlyonce.Fingerprint([]byte("an order")), Lease: long}
}

// newCaller returns the claim of another caller who asks for the same.
func newCaller(c onlyonce.Claim) onlyonce.Claim {
	c.Owner = newOwner()
	return c
}

// greedy returns the claim of another caller who takes whatever can be taken.
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

// mustClaim claims, and wants the command.
func (t *storeTest) mustClaim(c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r := t.claim(c)
	if r.Owner != c.Owner || r.State != onlyonce.StateProcessing {
		t.Fatalf("claim was not given: the record is %s", describe(r))
	}
	return r
}

// mustReject claims, and wants the command to stay what it is: s.
func (t *storeTest) mustReject(c onlyonce.Claim, s snapshot) {
	t.Helper()
	r := t.claim(c)
	if r.Owner == c.Owner {
		t.Errorf("claim was given: the record is %s", describe(r))
	}
	t.same(s.Record, r)
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

// until waits for a condition.
func (t *storeTest) until(what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(poll) {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not happen within %v", what, patience)
		}
	}
}

// wantErr checks the error of a call that must be rejected.
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
