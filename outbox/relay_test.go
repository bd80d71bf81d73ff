package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestRelay_ARelayIsWokenByAnAppend(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		start(t, q, b, outbox.Config{Poll: time.Hour})
		pass(time.Minute)
		began := time.Now()
		b.change(func() {
			b.onCall = func() {
				if took := time.Since(began); took > time.Millisecond {
					t.Errorf("the message was published after %v", took)
				}
			}
		})
		appendAll(t, q, message("", "a"))
		pass(time.Second)
		b.want(t, "a")
	})
}

func TestRelay_ARelayFindsWhatIsCommittedAWhileAfterTheAppend(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		start(t, q, b, outbox.Config{Poll: time.Hour})
		tx := q.begin()
		if err := tx.Append(t.Context(), message("", "a")); err != nil {
			t.Fatal(err)
		}
		pass(100 * time.Millisecond)
		b.want(t)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		pass(200 * time.Millisecond)
		b.want(t, "a")
	})
}

func TestRelay_ARelayPollsAQueueThatDoesNotWakeIt(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		start(t, struct{ outbox.Queue }{q}, b, outbox.Config{})
		pass(time.Minute)
		appendAll(t, q, message("", "a"))
		pass(250 * time.Millisecond)
		b.want(t, "a")
	})
}

func TestRelay_MessagesOfOneKeyArePublishedInOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		var all []outbox.Message
		for i := range 100 {
			all = append(all, message(fmt.Sprint("key", i%7), fmt.Sprintf("%d/%02d", i%7, i)))
		}
		appendAll(t, q, all...)
		start(t, q, b, outbox.Config{Batch: 30})
		pass(time.Second)
		got := b.payloads()
		if len(got) != len(all) {
			t.Fatalf("%d messages published", len(got))
		}
		slices.SortStableFunc(got, func(a, b string) int { return int(a[0]) - int(b[0]) })
		if !slices.IsSorted(got) {
			t.Errorf("published out of order: %v", got)
		}
	})
}

// A limitQueue notes how many messages were asked for, and returned, in each lease that
// returned some. It takes too long if there are more than most.
type limitQueue struct {
	*memQueue
	most     int
	asked    []int
	returned []int
}

func (q *limitQueue) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	if lag, _ := q.Lag(ctx); min(lag.Waiting, limit) > q.most {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	list, err := q.memQueue.Lease(ctx, owner, lease, limit, except...)
	if len(list) > 0 {
		q.asked, q.returned = append(q.asked, limit), append(q.returned, len(list))
	}
	return list, err
}

func TestRelay_ARelayLeasesFewerMessagesWhileTheyAreLarge(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := &limitQueue{memQueue: newMemQueue(), most: 1000}, new(broker)
		large := string(make([]byte, 8<<20))
		for range 30 {
			appendAll(t, q.memQueue, message("", large))
		}
		start(t, q, b, outbox.Config{})
		pass(time.Minute)
		if fmt.Sprint(q.returned) != "[4 4 4 4 4 4 4 2]" {
			t.Errorf("the batches had %v messages", q.returned)
		}
		q.asked = nil
		for range 1500 {
			appendAll(t, q.memQueue, message("", "small"))
		}
		pass(time.Minute)
		if last := q.asked[len(q.asked)-1]; last != 500 {
			t.Errorf("of small messages, %v were leased at a time", q.asked)
		}
		q.asked, q.returned = nil, nil
		for range 30 {
			appendAll(t, q.memQueue, message("", large))
		}
		pass(time.Minute)
		if slices.Max(q.returned) != 4 || q.asked[len(q.asked)-1] != 4 {
			t.Errorf("after small messages, batches of %v large ones were leased, and %v asked for", q.returned, q.asked)
		}
		wantLag(t, q.memQueue, 0, 0)
	})
}

func TestRelay_ARelayLeasesFewerMessagesIfAQueueTakesTooLong(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := &limitQueue{memQueue: newMemQueue(), most: 3}, new(broker)
		for range 20 {
			appendAll(t, q.memQueue, message("", "a"))
		}
		start(t, q, b, outbox.Config{})
		pass(10 * time.Minute)
		wantLag(t, q.memQueue, 0, 0)
	})
}

func TestRelay_AMessageThatFailsHoldsBackItsOwnKeyOnly(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{fail: map[string]error{"a1": errors.New("no")}}
		appendAll(t, q, message("a", "a1"), message("a", "a2"), message("b", "b1"), message("", "x"), message("b", "b2"))
		start(t, q, b, outbox.Config{Backoff: time.Second, Poll: 10 * time.Millisecond})
		pass(500 * time.Millisecond)
		b.want(t, "b1", "x", "b2")
		wantLag(t, q, 2, 0)
		b.change(func() { b.fail = nil })
		pass(time.Second)
		b.want(t, "b1", "x", "b2", "a1", "a2")
		wantLag(t, q, 0, 0)
	})
}

func TestRelay_TheBackoffOfAMessageGrows(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{fail: map[string]error{"bad": errors.New("no")}}
		appendAll(t, q, message("", "bad"))
		start(t, q, b, outbox.Config{Backoff: time.Second, MaxBackoff: 8 * time.Second, MaxAttempts: 100})
		pass(20 * time.Second) // after 0, 1, 3, 7, 15
		if n := b.asked(); n != 5 {
			t.Errorf("tried %d times in the first 20 seconds", n)
		}
		pass(80 * time.Second) // every 8
		if n := b.asked(); n < 14 || n > 16 {
			t.Errorf("tried %d times in 100 seconds", n)
		}
	})
}

func TestRelay_AMessageThatKeepsFailingIsParkedAndOthersGoOn(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b, seen := newMemQueue(), &broker{fail: map[string]error{"bad": errors.New("too large")}}, new(events)
		appendAll(t, q, message("k", "bad"), message("k", "after"), message("", "x"))
		start(t, q, b, outbox.Config{MaxAttempts: 3, Observer: seen.observe})
		pass(time.Minute)
		b.want(t, "x")
		wantLag(t, q, 1, 1)
		parked, err := q.Parked(t.Context(), 0, 10)
		if err != nil || len(parked) != 1 || string(parked[0].Payload) != "bad" || parked[0].Attempts != 3 || parked[0].Error != "too large" {
			t.Fatalf("parked %+v, %v", parked, err)
		}
		if f, p := seen.count(outbox.OutcomeFailed), seen.count(outbox.OutcomeParked); f != 2 || p != 1 {
			t.Errorf("the observer saw %d failures and %d parked", f, p)
		}
		b.change(func() { b.fail = nil })
		if n, err := q.Requeue(t.Context(), parked[0].Seq); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		pass(time.Second)
		b.want(t, "x", "bad", "after")
	})
}

func TestRelay_AMessageThatCanNotBePublishedIsParkedUntriedAndOthersGoOn(t *testing.T) {
	for name, damage := range map[string]func(*outbox.Entry){
		"corrupt":            func(e *outbox.Entry) { e.Corrupt, e.Error = true, "headers: not JSON" },
		"no ID":              func(e *outbox.Entry) { e.ID = "" },
		"no topic":           func(e *outbox.Entry) { e.Topic = "" },
		"topic is not UTF-8": func(e *outbox.Entry) { e.Topic = "a\xff" },
		"header of two lines": func(e *outbox.Entry) {
			e.Headers = map[string]string{"X-A": "b\r\nX-C: d"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				q, b, seen := newMemQueue(), new(broker), new(events)
				appendAll(t, q, message("k", "bad"), message("k", "after"), message("", "alone"), message("", "x"))
				damage(&q.rows[0].Entry)
				damage(&q.rows[2].Entry)
				start(t, q, b, outbox.Config{Observer: seen.observe})
				pass(time.Second)
				b.want(t, "x")
				wantLag(t, q, 1, 2)
				parked, err := q.Parked(t.Context(), 0, 10)
				if err != nil || len(parked) != 2 || string(parked[0].Payload) != "bad" || parked[0].Attempts != 0 || parked[0].Error == "" {
					t.Fatalf("parked %+v, %v", parked, err)
				}
				if f, p := seen.count(outbox.OutcomeFailed), seen.count(outbox.OutcomeParked); f != 0 || p != 2 {
					t.Errorf("the observer saw %d failures and %d parked", f, p)
				}
				if n, err := q.Discard(t.Context(), parked[0].Seq); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				pass(time.Second)
				b.want(t, "x", "after")
			})
		})
	}
}

func TestRelay_ABrokerThatIsAwayParksNothingAndKeepsTheOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		q, seen := newMemQueue(), new(events)
		b := &broker{away: fmt.Errorf("connection refused: %w", outbox.ErrUnavailable)}
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprintf("%02d", i))
			appendAll(t, q, message("k", want[i]))
		}
		start(t, q, b, outbox.Config{MaxAttempts: 2, Observer: seen.observe})
		pass(time.Hour)
		wantLag(t, q, 20, 0)
		if n := b.asked(); n > 3600/4 {
			t.Errorf("the broker was asked %d times in an hour", n)
		}
		if seen.count(outbox.OutcomeUnavailable) == 0 || seen.count(outbox.OutcomeFailed) != 0 {
			t.Error("the observer was not told so")
		}
		b.change(func() { b.away = nil })
		pass(6 * time.Second)
		b.want(t, want...)
	})
}

func TestRelay_TwoRelaysPublishEachMessageOnceAndInOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		for range 2 {
			start(t, q, b, outbox.Config{Batch: 10})
		}
		want := make(map[string][]string)
		for i := range 500 {
			key, payload := fmt.Sprint(i%11), fmt.Sprintf("%03d", i)
			want[key] = append(want[key], payload)
			appendAll(t, q, message(key, payload))
			if i%50 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		pass(time.Minute)
		got := make(map[string][]string)
		for _, m := range b.got {
			got[m.Key] = append(got[m.Key], string(m.Payload))
		}
		if !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("published %v", got)
		}
	})
}

func TestRelay_PublishedMessagesAreKeptAsLongAsConfigured(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		start(t, q, b, outbox.Config{Keep: time.Hour})
		appendAll(t, q, message("", "a"))
		pass(30 * time.Minute)
		if n := q.kept(); n != 1 {
			t.Errorf("after half an hour %d are kept", n)
		}
		pass(32 * time.Minute)
		if n := q.kept(); n != 0 {
			t.Errorf("after an hour %d are kept", n)
		}
		b.want(t, "a")
	})
}

func TestRelay_TheObserverGetsTheLag(t *testing.T) {
	in(t, func(t *testing.T) {
		q := newMemQueue()
		b := &broker{away: outbox.ErrUnavailable}
		appendAll(t, q, message("", "a"), message("", "b"))
		var last outbox.Lag
		start(t, q, b, outbox.Config{LagEvery: time.Minute, Observer: func(_ context.Context, e outbox.Event) {
			if e.Outcome == outbox.OutcomeLag {
				last = e.Lag
			}
		}})
		pass(10*time.Minute + 30*time.Second)
		if last.Waiting != 2 || last.Oldest < 9*time.Minute {
			t.Errorf("the lag was %+v", last)
		}
	})
}

func TestRelay_APublisherThatReturnsTooFewErrorsLosesNoMessage(t *testing.T) {
	in(t, func(t *testing.T) {
		q := newMemQueue()
		appendAll(t, q, message("", "a"), message("", "b"))
		start(t, q, outbox.PublisherFunc(func(context.Context, []outbox.Message) []error {
			return []error{nil}
		}), outbox.Config{Backoff: time.Hour, MaxBackoff: time.Hour})
		pass(time.Minute)
		wantLag(t, q, 1, 0)
	})
}
