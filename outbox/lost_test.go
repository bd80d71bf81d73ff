package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestRelay_ALeaseIsRenewedWhilePublishingTakesLong(t *testing.T) {
	in(t, func(t *testing.T) {
		q, slow, other := newMemQueue(), &broker{takes: time.Minute}, new(broker)
		appendAll(t, q, message("k", "a"), message("k", "b"))
		start(t, q, slow, outbox.Config{Lease: 3 * time.Second, Timeout: time.Hour})
		pass(time.Second)
		start(t, q, other, outbox.Config{})
		pass(3 * time.Minute)
		slow.want(t, "a", "b")
		other.want(t)
	})
}

func TestRelay_APublisherThatDoesNotReturnKeepsItsMessagesFromNoOtherRelay(t *testing.T) {
	in(t, func(t *testing.T) {
		q, other, seen := newMemQueue(), new(broker), new(events)
		appendAll(t, q, message("k", "a"), message("k", "b"))
		release := make(chan struct{})
		stuck := outbox.PublisherFunc(func(context.Context, []outbox.Message) []error {
			<-release
			return nil
		})
		start(t, q, stuck, outbox.Config{Lease: 3 * time.Second, Timeout: 10 * time.Second, Observer: seen.observe})
		pass(time.Second)
		start(t, q, other, outbox.Config{})
		pass(11 * time.Second) // it may still return
		other.want(t)
		pass(6 * time.Second)
		other.want(t, "a", "b")
		if n := seen.count(outbox.OutcomeUnavailable); n != 1 {
			t.Errorf("the observer heard of it %d times", n)
		}
		close(release)
		pass(time.Second)
		if n := seen.count(outbox.OutcomeLost); n != 2 {
			t.Errorf("the observer heard of %d messages that were lost", n)
		}
	})
}

func TestRelay_WhatAPublisherAcknowledgesLateIsPublished(t *testing.T) {
	in(t, func(t *testing.T) {
		q, seen, calls := newMemQueue(), new(events), 0
		appendAll(t, q, message("k", "a"))
		late := outbox.PublisherFunc(func(context.Context, []outbox.Message) []error {
			calls++
			time.Sleep(time.Minute)
			return nil
		})
		start(t, q, late, outbox.Config{Lease: 3 * time.Second, Timeout: 10 * time.Second, Observer: seen.observe})
		pass(5 * time.Minute)
		if n := seen.count(outbox.OutcomePublished); n != 1 || calls != 1 {
			t.Errorf("%d published in %d calls", n, calls)
		}
	})
}

// A deaf queue can't be renewed or settled.
type deafQueue struct {
	*memQueue
	err error
}

func (q deafQueue) Renew(context.Context, string, time.Duration, ...int64) error { return q.err }

func (q deafQueue) Settle(context.Context, string, []outbox.Verdict) error { return q.err }

func TestRelay_ARelayThatCantRenewStopsPublishingBeforeItsLeaseEnds(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: time.Hour}
		appendAll(t, q, message("k", "a"))
		began := time.Now()
		var stopped time.Duration
		p := outbox.PublisherFunc(func(ctx context.Context, m []outbox.Message) []error {
			defer func() {
				if stopped == 0 {
					stopped = time.Since(began)
				}
			}()
			return b.Publish(ctx, m)
		})
		start(t, deafQueue{q, errors.New("no route")}, p, outbox.Config{Lease: 12 * time.Second, Timeout: time.Hour})
		pass(15 * time.Second)
		if stopped != 9*time.Second {
			t.Errorf("publishing ended after %v, want 9s", stopped)
		}
	})
}

func TestRelay_WhatWasPublishedButNotMarkedIsPublishedAgainWithTheSameID(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		appendAll(t, q, message("k", "a"), message("k", "b"))
		stop := start(t, deafQueue{q, errors.New("the connection broke")}, b, outbox.Config{Lease: time.Second})
		pass(500 * time.Millisecond)
		stop() // as if it were killed
		b.want(t, "a", "b")
		pass(time.Minute)
		start(t, q, b, outbox.Config{})
		pass(time.Second)
		b.want(t, "a", "b", "a", "b")
		if b.got[0].ID != b.got[2].ID || b.got[1].ID != b.got[3].ID || b.got[0].Headers[outbox.HeaderID] != b.got[0].ID {
			t.Error("the IDs are not the same")
		}
		wantLag(t, q, 0, 0)
	})
}

func TestRelay_AMarkThatFailsForAMomentIsTriedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		appendAll(t, q, message("", "a"))
		flaky := &flakyQueue{memQueue: q, failures: 5}
		start(t, flaky, b, outbox.Config{})
		pass(time.Second)
		b.want(t, "a")
		wantLag(t, q, 0, 0)
		if flaky.failures != 0 {
			t.Error("it did not fail")
		}
	})
}

type flakyQueue struct {
	*memQueue
	failures int
}

func (q *flakyQueue) Settle(ctx context.Context, owner string, v []outbox.Verdict) error {
	if q.failures > 0 {
		q.failures--
		return errors.New("deadlock")
	}
	return q.memQueue.Settle(ctx, owner, v)
}

func TestRelay_ARelayThatLostItsLeaseMarksNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		q, seen := newMemQueue(), new(events)
		appendAll(t, q, message("k", "a"))
		frozen := outbox.PublisherFunc(func(context.Context, []outbox.Message) []error {
			time.Sleep(10 * time.Second) // observes nothing
			return nil
		})
		stop := start(t, deafQueueOnRenew{q}, frozen, outbox.Config{Lease: time.Second, Observer: seen.observe})
		pass(5 * time.Second)
		if e, err := q.Lease(t.Context(), "other", time.Hour, 10); len(e) != 1 || err != nil {
			t.Fatal(e, err)
		}
		pass(6 * time.Second)
		stop()
		wantLag(t, q, 1, 0)
		if seen.count(outbox.OutcomeLost) != 1 || seen.count(outbox.OutcomePublished) != 0 {
			t.Error("the observer was not told so")
		}
	})
}

type deafQueueOnRenew struct{ *memQueue }

func (deafQueueOnRenew) Renew(context.Context, string, time.Duration, ...int64) error {
	return errors.New("no route")
}

func TestRelay_StoppingFinishesWhatIsBeingPublishedAndReleasesTheRest(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: time.Second}
		appendAll(t, q, message("k", "a"), message("k", "b"), message("", "c"))
		stop := start(t, q, b, outbox.Config{})
		pass(500 * time.Millisecond)
		stop()
		b.want(t, "a", "c")
		left, err := q.Lease(t.Context(), "other", time.Minute, 10)
		if err != nil || len(left) != 1 || string(left[0].Payload) != "b" || left[0].Attempts != 0 {
			t.Errorf("given back: %+v, %v", left, err)
		}
	})
}

func TestRelay_StoppingDoesNotWaitForABrokerThatHangs(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{takes: time.Hour}
		appendAll(t, q, message("k", "a"))
		stop := start(t, q, b, outbox.Config{Timeout: time.Hour, Grace: 3 * time.Second})
		pass(500 * time.Millisecond)
		began := time.Now()
		stop()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		left, err := q.Lease(t.Context(), "other", time.Minute, 10)
		if err != nil || len(left) != 1 || left[0].Attempts != 0 {
			t.Errorf("given back: %+v, %v", left, err)
		}
	})
}

func TestRelay_AQueueThatIsAwayIsTriedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b, seen := newMemQueue(), new(broker), new(events)
		appendAll(t, q, message("", "a"))
		away := &awayQueue{memQueue: q, until: time.Now().Add(time.Minute)}
		start(t, away, b, outbox.Config{Observer: seen.observe})
		pass(66 * time.Second)
		b.want(t, "a")
		if n := seen.count(outbox.OutcomeTrouble); n < 10 || n > 30 {
			t.Errorf("the observer heard of it %d times", n)
		}
	})
}

type awayQueue struct {
	*memQueue
	until time.Time
}

func (q *awayQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	if time.Now().Before(q.until) {
		return nil, errors.New("connection refused")
	}
	return q.memQueue.Lease(ctx, owner, lease, limit, except...)
}

// A slow queue's response to Lease takes a second.
type slowQueue struct{ *memQueue }

func (q slowQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	list, err := q.memQueue.Lease(ctx, owner, lease, limit, except...)
	time.Sleep(time.Second)
	return list, errors.Join(err, ctx.Err())
}

func TestRelay_StoppingWhileMessagesAreLeasedReleasesThem(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		appendAll(t, q, message("k", "a"))
		stop := start(t, slowQueue{q}, b, outbox.Config{})
		pass(500 * time.Millisecond)
		stop()
		left, err := q.Lease(t.Context(), "other", time.Minute, 10)
		if err != nil || len(left) != 1 {
			t.Errorf("given back: %+v, %v", left, err)
		}
		b.want(t)
	})
}
