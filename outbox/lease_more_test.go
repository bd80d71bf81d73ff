package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// A doubtfulQueue leases a certain message, and the first response that has it is lost.
type doubtfulQueue struct {
	*memQueue
	payload string
	lost    bool
}

func (q *doubtfulQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	list, err := q.memQueue.Lease(ctx, owner, lease, limit, except...)
	if !q.lost && slices.ContainsFunc(list, func(e outbox.Entry) bool { return string(e.Payload) == q.payload }) {
		q.lost = true
		return nil, errors.Join(err, errors.New("connection reset"))
	}
	return list, err
}

func TestRelay_MessagesWhoseLeaseIsInDoubtWaitUntilItLapses(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: 10 * time.Millisecond}
		keepBusy(t, q, 4000)
		start(t, &doubtfulQueue{memQueue: q, payload: "other"}, b, outbox.Config{Lease: 3 * time.Second})
		pass(2 * time.Second)
		appendAll(t, q, message("", "other"))
		pass(6 * time.Second)
		if !slices.Contains(b.payloads(), "other") {
			t.Error("the other message still waits")
		}
	})
}

// keepBusy appends messages of two keys, of which now the one has more and now the other.
func keepBusy(t *testing.T, q *memQueue, messages int) {
	for i := range messages {
		appendAll(t, q, message([]string{"busy", "busier"}[i/100%5%2], fmt.Sprintf("busy %04d", i)))
	}
}

func TestRelay_ABusyKeyDoesNotKeepItsBatchSmall(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: 100 * time.Millisecond}
		for i := range 3000 {
			appendAll(t, q, message([]string{"busy", "busier"}[i%5%2], fmt.Sprint("busy ", i)))
			if i >= 20 {
				appendAll(t, q, message("", fmt.Sprint("other ", i)))
			}
		}
		start(t, q, b, outbox.Config{})
		pass(20 * time.Second)
		if n := b.count("other"); n < 2000 { // a batch of 32 messages, four times a second, would be fewer
			t.Errorf("%d other messages were published in 20 seconds", n)
		}
	})
}

// A broker that withholds the confirmation of a message takes all the time that the call may take.
func TestRelay_MessagesThatTakeLongToFailDoNotSlowDownABusyKey(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		appendAll(t, q, message("", "slow"))
		for i := range 200 {
			appendAll(t, q, message("busy", fmt.Sprintf("busy %04d", i)))
		}
		p := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) []error {
			errs := b.Publish(ctx, messages)
			for i, m := range messages {
				if m.Key == "" {
					<-ctx.Done()
					errs[i] = outbox.ErrNoRoute
				}
			}
			return errs
		})
		start(t, q, p, outbox.Config{})
		for range 60 {
			pass(time.Second)
			appendAll(t, q, message("", "slow"))
		}
		if n := b.count("busy"); n != 200 {
			t.Errorf("%d of 200 messages of the busy key were published in a minute", n)
		}
	})
}

func TestRelay_ARelayThatLearnsOfItsLostLeaseStopsPublishing(t *testing.T) {
	in(t, func(t *testing.T) {
		q, paused, other := newMemQueue(), &broker{takes: 100 * time.Millisecond}, new(broker)
		for i := range 500 { // so that the relay's batches become large
			appendAll(t, q, message("", fmt.Sprint("more ", i)))
		}
		start(t, q, paused, outbox.Config{Batch: 200})
		pass(2 * time.Second)
		for i := range 100 {
			appendAll(t, q, message("busy", fmt.Sprintf("busy %04d", i)))
		}
		pass(2 * time.Second)
		q.lapse() // as if the relay's machine had been suspended
		before := paused.count("busy")
		stop := start(t, q, other, outbox.Config{})
		pass(time.Second)
		stop()
		for i := range 20 {
			appendAll(t, q, message("", fmt.Sprint("more ", i)))
			pass(200 * time.Millisecond)
		}
		if again := paused.count("busy") - before; again > 22 { // for a second, the other relay had not leased them
			t.Errorf("%d messages were published that another relay had leased", again)
		}
		wantLag(t, q, 0, 0)
	})
}

// lapse ends all leases.
func (q *memQueue) lapse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.rows {
		if r.state == stateLeased {
			r.state, r.due = outbox.StateWaiting, time.Time{}
		}
	}
}

// count returns how many messages were acknowledged whose payloads have the prefix.
func (b *broker) count(prefix string) (n int) {
	for _, p := range b.payloads() {
		if strings.HasPrefix(p, prefix) {
			n++
		}
	}
	return n
}

// A tardyQueue takes eight seconds to return what it leased after the first lease, and then renews none.
type tardyQueue struct {
	*memQueue
	leases int
	last   atomic.Bool // no lease is renewed any more
}

func (q *tardyQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	list, err := q.memQueue.Lease(ctx, owner, lease, limit, except...)
	if q.leases++; q.leases == 2 {
		time.Sleep(8 * time.Second)
		q.last.Store(true)
	}
	return list, err
}

func (q *tardyQueue) Renew(ctx context.Context, owner string, lease time.Duration, seqs ...int64) error {
	if q.last.Load() {
		return errors.New("no route")
	}
	return q.memQueue.Renew(ctx, owner, lease, seqs...)
}

func TestRelay_MessagesThatAreLeasedDuringARenewalAreNotPublishedBeyondTheirLease(t *testing.T) {
	in(t, func(t *testing.T) {
		q := &tardyQueue{memQueue: newMemQueue()}
		appendAll(t, q.memQueue, message("k", "a"), message("k", "b"), message("k", "c"), message("k", "last"))
		began := time.Now()
		var ended time.Duration
		p := outbox.PublisherFunc(func(ctx context.Context, m []outbox.Message) []error {
			if string(m[0].Payload) == "last" {
				<-ctx.Done()
				ended = time.Since(began)
			}
			time.Sleep(time.Second)
			return nil
		})
		start(t, q, p, outbox.Config{Lease: 12 * time.Second, Timeout: time.Hour})
		pass(time.Second)
		appendAll(t, q.memQueue, message("", "x"))
		pass(15 * time.Second)
		if ended != 12*time.Second { // x was leased after 3s, and a quarter of the lease is left
			t.Errorf("publishing ended after %v, want 12s", ended)
		}
	})
}

// A namedQueue notes how many messages each renewal names.
type namedQueue struct {
	*memQueue
	named []int
}

func (q *namedQueue) Renew(ctx context.Context, owner string, lease time.Duration, seqs ...int64) error {
	q.named = append(q.named, len(seqs))
	return q.memQueue.Renew(ctx, owner, lease, seqs...)
}

func TestRelay_ALeaseIsRenewedOnMessagesThatAreNotSettled(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := &namedQueue{memQueue: newMemQueue()}, &broker{takes: 4 * time.Second}
		appendAll(t, q.memQueue, message("k", "a"), message("k", "b"), message("k", "c"))
		start(t, q, b, outbox.Config{Lease: 10 * time.Second, Timeout: time.Hour})
		pass(time.Minute)
		b.want(t, "a", "b", "c")
		if !slices.Equal(q.named, []int{3, 2, 1}) {
			t.Errorf("the renewals named %v messages", q.named)
		}
	})
}

func TestRelay_ALateRenewalOfMessagesThatAreSettledDoesNotEndTheLeaseOfOthers(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b, seen := &lateQueue{memQueue: newMemQueue()}, &broker{takes: 2 * time.Second}, new(events)
		q.renew.Store(int64(4500 * time.Millisecond))
		appendAll(t, q.memQueue, message("k", "a"), message("k", "b"), message("k", "c"), message("k", "d"))
		start(t, q, b, outbox.Config{Lease: 13500 * time.Millisecond, Timeout: time.Hour, Observer: seen.observe})
		pass(time.Second)
		appendAll(t, q.memQueue, message("l", "x"), message("l", "y"), message("l", "z"))
		pass(time.Minute)
		b.want(t, "a", "b", "c", "d", "x", "y", "z")
		if n := seen.count(outbox.OutcomeUnavailable) + seen.count(outbox.OutcomeFailed); n != 0 || b.asked() != 6 {
			t.Errorf("the broker was asked %d times, and %d times in vain", b.asked(), n)
		}
	})
}
