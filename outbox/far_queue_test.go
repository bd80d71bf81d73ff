package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// A farQueue is in a database that is far away: each group of messages with the same verdict takes
// a round trip. A settlement that does not end in time is undone.
type farQueue struct {
	*memQueue
	trip time.Duration
}

func (q *farQueue) Settle(ctx context.Context, owner string, verdicts []outbox.Verdict) error {
	groups := make(map[outbox.Verdict]bool)
	for _, v := range verdicts {
		v.Seq = 0
		groups[v] = true
	}
	select {
	case <-time.After(time.Duration(len(groups)) * q.trip):
		return q.memQueue.Settle(ctx, owner, verdicts)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestRelay_ManyMessagesThatFailAreParkedThroughAFarQueue(t *testing.T) {
	for text, within := range map[string]time.Duration{"rejected": 30 * time.Second, "rejected: ID": 10 * time.Minute} {
		in(t, func(t *testing.T) {
			q, b := newMemQueue(), &broker{fail: make(map[string]error)}
			const n = 1000
			for i := range n {
				payload := fmt.Sprint("bad ", i)
				b.fail[payload] = errors.New(strings.ReplaceAll(text, "ID", payload))
				appendAll(t, q, message("", payload), message("", fmt.Sprint("good ", i)))
			}
			start(t, &farQueue{memQueue: q, trip: 50 * time.Millisecond}, b, outbox.Config{MaxAttempts: 3})
			pass(within)
			wantLag(t, q, 0, n)
			if good := b.count("good"); good != n {
				t.Errorf("%d messages were published instead of %d", good, n)
			}
		})
	}
}

// A queue that renews leases but records nothing, for instance because a right is missing.
type readOnlyQueue struct{ *memQueue }

func (q readOnlyQueue) Settle(context.Context, string, []outbox.Verdict) error {
	return errors.New("permission denied")
}

func TestRelay_AQueueThatRecordsNothingIsReportedWhileTheRelayRetries(t *testing.T) {
	in(t, func(t *testing.T) {
		q, seen := newMemQueue(), new(events)
		appendAll(t, q, message("", "a"))
		start(t, readOnlyQueue{q}, new(broker), outbox.Config{Observer: seen.observe})
		pass(5 * time.Minute)
		if seen.count(outbox.OutcomeTrouble) == 0 {
			t.Error("nobody has learned that nothing is recorded")
		}
	})
}

// A lateQueue takes long to lease messages, to renew leases, and to count messages.
type lateQueue struct {
	*memQueue
	lease, renew, lag atomic.Int64 // durations
	lags              atomic.Int64 // how often messages were counted
}

func (q *lateQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	time.Sleep(time.Duration(q.lease.Load()))
	return q.memQueue.Lease(ctx, owner, lease, limit, except...)
}

func (q *lateQueue) Renew(ctx context.Context, owner string, lease time.Duration, seqs ...int64) error {
	time.Sleep(time.Duration(q.renew.Load()))
	return q.memQueue.Renew(ctx, owner, lease, seqs...)
}

func (q *lateQueue) Lag(ctx context.Context) (outbox.Lag, error) {
	q.lags.Add(1)
	time.Sleep(time.Duration(q.lag.Load()))
	return q.memQueue.Lag(ctx)
}

func TestRelay_AQueueThatTakesMostOfTheLeaseToLeaseMessagesDoesNotStopTheRelay(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b, seen := &lateQueue{memQueue: newMemQueue()}, new(broker), new(events)
		q.lease.Store(int64(4 * time.Second))
		q.renew.Store(int64(4 * time.Second))
		appendAll(t, q.memQueue, message("k", "a"), message("k", "b"))
		start(t, q, b, outbox.Config{Lease: 5 * time.Second, Observer: seen.observe})
		pass(time.Minute)
		b.want(t) // the lease may end at once
		if n := seen.count(outbox.OutcomeTrouble); n < 2 || n > 10 {
			t.Errorf("trouble was reported %d times", n)
		}
		q.renew.Store(0)
		pass(20 * time.Second)
		b.want(t, "a", "b")
		wantLag(t, q.memQueue, 0, 0)
	})
}

func TestRelay_CountingALargeBacklogLeavesMostOfTheTimeForPublishing(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := &lateQueue{memQueue: newMemQueue()}, new(broker)
		q.lag.Store(int64(8 * time.Second))
		start(t, q, b, outbox.Config{Observer: new(events).observe})
		pass(1000 * time.Second)
		if n := q.lags.Load(); n < 10 || n > 15 {
			t.Errorf("the messages were counted %d times", n)
		}
	})
}
