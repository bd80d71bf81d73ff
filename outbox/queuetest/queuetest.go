// Package queuetest is the specification of a queue of messages: the rules of
// outbox.Queue, as tests that any queue runs.
//
// No rule depends on how fast the queue is. A lease that has to be alive is
// ten minutes long. A lease that has to lapse is short, and the rule waits until
// the queue says that it has lapsed.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// A Tx appends messages in a transaction of the queue's store.
type Tx interface {
	Append(ctx context.Context, messages ...outbox.Message) error
	Commit() error
	Rollback() error
}

// An Opened is a queue without messages.
type Opened struct {
	Queue outbox.Queue

	// Begin begins a transaction. Those of a store with one writer may wait
	// for each other; then OneWriter is set, and the rules have one at a time.
	Begin     func(ctx context.Context) (Tx, error)
	OneWriter bool
}

// Run tests that the queues that open returns keep the rules. open must return
// a queue without messages each time, and clean up with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Opened) {
	for _, g := range []struct {
		name  string
		rules []rule
	}{{"append", appendRules}, {"lease", leaseRules}, {"key", keyRules}, {"settle", settleRules}, {"park", parkRules}, {"audit", auditRules}, {"model", modelRules}, {"race", raceRules}} {
		t.Run(g.name, func(t *testing.T) {
			for _, r := range g.rules {
				t.Run(r.name, func(t *testing.T) {
					r.check(&queueTest{T: t, Opened: open(t)})
				})
			}
		})
	}
}

// A rule is one sentence that every queue keeps.
type rule struct {
	name  string
	check func(t *queueTest)
}

// A queueTest is the test of one rule on a queue of its own.
type queueTest struct {
	*testing.T
	Opened
}

// long is a lease that is alive until the test ends; short one that lapses.
const (
	long     = 10 * time.Minute
	short    = 20 * time.Millisecond
	patience = time.Minute // how long anything may take before it counts as never
)

func (t *queueTest) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func message(key, payload string) outbox.Message {
	return outbox.Message{Topic: "test", Key: key, Payload: []byte(payload)}
}

// add appends messages in a transaction of its own.
func (t *queueTest) add(messages ...outbox.Message) {
	t.Helper()
	tx, err := t.Begin(t.Context())
	t.must(err)
	t.must(tx.Append(t.Context(), messages...))
	t.must(tx.Commit())
}

// lease leases the waiting messages.
func (t *queueTest) lease(owner string, d time.Duration, limit int) []outbox.Entry {
	t.Helper()
	list, err := t.Queue.Lease(t.Context(), owner, d, limit)
	t.must(err)
	return list
}

func (t *queueTest) renew(owner string, d time.Duration, list ...outbox.Entry) error {
	seqs := make([]int64, len(list))
	for i := range list {
		seqs[i] = list[i].Seq
	}
	return t.Queue.Renew(t.Context(), owner, d, seqs...)
}

// want leases at most limit messages and fails the test unless they have these payloads.
func (t *queueTest) want(owner string, limit int, payloads ...string) []outbox.Entry {
	t.Helper()
	list := t.lease(owner, long, limit)
	t.wantSame(list, payloads)
	return list
}

func (t *queueTest) wantSame(list []outbox.Entry, payloads []string) {
	t.Helper()
	var got []string
	for _, e := range list {
		got = append(got, string(e.Payload))
	}
	if !slices.Equal(got, payloads) {
		t.Fatalf("leased %q, want %q", got, payloads)
	}
}

// until waits for a condition.
func (t *queueTest) until(what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not happen within %v", what, patience)
		}
	}
}

// awaitLapse leases for owner, again and again until n messages have lapsed. Those of
// one lease may lapse one after the other: too few are put back as they were.
func (t *queueTest) awaitLapse(owner string, n int) (list []outbox.Entry) {
	t.Helper()
	t.until("the lease lapses", func() bool {
		if list = t.lease(owner, long, 100); len(list) >= n {
			return true
		}
		for _, e := range list {
			t.must(t.settle(owner, outbox.Verdict{State: outbox.StateWaiting, Attempts: e.Attempts, Error: e.Error}, e))
		}
		return false
	})
	return list
}

// settle says the same of all entries.
func (t *queueTest) settle(owner string, v outbox.Verdict, entries ...outbox.Entry) error {
	t.Helper()
	var all []outbox.Verdict
	for _, e := range entries {
		v.Seq = e.Seq
		all = append(all, v)
	}
	return t.Queue.Settle(t.Context(), owner, all)
}

var published = outbox.Verdict{State: outbox.StatePublished}

func (t *queueTest) wantLost(err error) {
	t.Helper()
	if !errors.Is(err, outbox.ErrLost) {
		t.Fatalf("got %v, want ErrLost", err)
	}
}

func (t *queueTest) wantLag(waiting, parked int) {
	t.Helper()
	lag, err := t.Queue.Lag(t.Context())
	t.must(err)
	if lag.Waiting != waiting || lag.Parked != parked {
		t.Fatalf("%d wait and %d are parked, want %d and %d", lag.Waiting, lag.Parked, waiting, parked)
	}
}

func payloads(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%04d", i))
	}
	return list
}
