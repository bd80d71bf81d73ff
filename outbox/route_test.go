package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestRelay_MessagesWithoutARouteHoldUpOnlyTheirKeysAndAreNotParked(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b, seen := newMemQueue(), &broker{fail: make(map[string]error)}, new(events)
		const waiting = 200 // many batches
		for i := range waiting {
			payload := fmt.Sprintf("no route %03d", i)
			b.fail[payload] = fmt.Errorf("no queue: %w", outbox.ErrNoRoute)
			appendAll(t, q, message("", payload))
		}
		b.fail["1"] = outbox.ErrNoRoute
		appendAll(t, q, message("k", "1"), message("k", "2"), message("", "a"))
		start(t, q, b, outbox.Config{Batch: 10, MaxAttempts: 2, Observer: seen.observe})
		pass(2 * time.Second)
		b.want(t, "a")
		pass(time.Hour)
		wantLag(t, q, waiting+2, 0)
		if seen.count(outbox.OutcomeUnavailable) == 0 || seen.count(outbox.OutcomeFailed) != 0 {
			t.Error("the observer was not told so")
		}
		calls := b.asked()
		pass(time.Hour)
		if n := b.asked() - calls; n > 60*(waiting+1) {
			t.Errorf("%d calls in an hour: more than one for each message in a minute", n)
		}
		b.change(func() { b.fail = nil })
		pass(time.Minute + time.Second)
		wantLag(t, q, 0, 0)
		if got := b.payloads(); len(got) != waiting+3 {
			t.Errorf("%d were published", len(got))
		}
	})
}

func TestRelay_MessagesWithoutARouteHoldUpNoOthersHoweverLongItTakesToTryThem(t *testing.T) {
	in(t, func(t *testing.T) {
		const waiting = 200
		q := newMemQueue()
		for i := range waiting {
			appendAll(t, q, message("", fmt.Sprintf("no route %03d", i)))
		}
		start(t, q, outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) []error {
			time.Sleep(time.Second) // for all of them, this takes longer than MaxBackoff
			errs := make([]error, len(messages))
			for i, m := range messages {
				if strings.HasPrefix(string(m.Payload), "no route") {
					errs[i] = outbox.ErrNoRoute
				}
			}
			return errs
		}), outbox.Config{Batch: 10, MaxBackoff: 5 * time.Second})
		for i := range 3 {
			appendAll(t, q, message("", fmt.Sprint(i)))
			pass(2 * time.Minute)
			wantLag(t, q, waiting, 0)
		}
	})
}

func TestRelay_MessagesThatFailHoldUpNoOthersHoweverLongItTakesToTryThem(t *testing.T) {
	in(t, func(t *testing.T) {
		const failing = 200
		q := newMemQueue()
		for i := range failing {
			appendAll(t, q, message("", fmt.Sprintf("fails %03d", i)))
		}
		start(t, q, outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) []error {
			time.Sleep(time.Second) // for all of them, this takes longer than MaxBackoff
			errs := make([]error, len(messages))
			for i, m := range messages {
				if strings.HasPrefix(string(m.Payload), "fails") {
					errs[i] = errors.New("rejected")
				}
			}
			return errs
		}), outbox.Config{Batch: 10, MaxBackoff: 5 * time.Second, MaxAttempts: 1000})
		for i := range 3 {
			appendAll(t, q, message("", fmt.Sprint(i)))
			pass(2 * time.Minute)
			wantLag(t, q, failing, 0)
		}
	})
}

func TestRelay_AMessageThatHasARouteSoonIsPublishedSoon(t *testing.T) {
	in(t, func(t *testing.T) {
		q := newMemQueue()
		var calls int
		appendAll(t, q, message("", "a"))
		start(t, q, outbox.PublisherFunc(func(context.Context, []outbox.Message) []error {
			if calls++; calls < 5 {
				return []error{outbox.ErrNoRoute}
			}
			return nil
		}), outbox.Config{})
		pass(5 * time.Second)
		wantLag(t, q, 0, 0)
	})
}

// A topicBroker takes the messages of some topics. The errors of other topics do not say whether the
// broker or only the topic is away.
type topicBroker struct {
	broker
	awayTopics func(topic string) bool
}

func (b *topicBroker) Publish(ctx context.Context, messages []outbox.Message) []error {
	taken, at := []outbox.Message(nil), []int(nil)
	errs := make([]error, len(messages))
	for i, m := range messages {
		if b.awayTopics(m.Topic) {
			errs[i] = outbox.ErrUnavailable
		} else {
			taken, at = append(taken, m), append(at, i)
		}
	}
	for i, err := range b.broker.Publish(ctx, taken) {
		errs[at[i]] = err
	}
	return errs
}

// A slowSearch takes a second to find messages of other topics than some.
type slowSearch struct{ *memQueue }

func (q slowSearch) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	if len(except) > 0 {
		time.Sleep(time.Second)
	}
	return q.memQueue.Lease(ctx, owner, lease, limit, except...)
}

func TestRelay_TopicsThatAreAwayHoldUpOnlyTheirKeysHoweverManyMessagesTheyHave(t *testing.T) {
	in(t, func(t *testing.T) {
		q := newMemQueue()
		var away atomic.Bool
		away.Store(true)
		b := &topicBroker{awayTopics: func(topic string) bool { return away.Load() && topic != "test" }}
		const waiting = 200 // many batches
		for i := range waiting {
			appendAll(t, q, outbox.Message{Topic: fmt.Sprint("away ", i%3), Key: fmt.Sprint(i % 20), Payload: fmt.Append(nil, i%20)})
		}
		appendAll(t, q, message("", "a"), message("0", "after 0"), message("k", "b"))
		start(t, slowSearch{q}, b, outbox.Config{Batch: 10, MaxAttempts: 2})
		pass(30 * time.Second)
		b.want(t, "a", "b")
		for range 100 {
			appendAll(t, q, message("", "c"))
		}
		pass(10 * time.Second) // the queue does not search for each batch
		wantLag(t, q, waiting+1, 0)
		pass(time.Hour)
		wantLag(t, q, waiting+1, 0)
		b.change(func() { b.away = outbox.ErrUnavailable }) // now the broker is away
		appendAll(t, q, message("", "d"))
		pass(time.Hour)
		away.Store(false)
		b.change(func() { b.away = nil })
		pass(7 * time.Second)
		wantLag(t, q, 0, 0)
		if list := b.payloads(); slices.Index(list, "after 0") < lastIndex(list, "0") {
			t.Errorf("a message has overtaken one of its key: %v", list)
		}
		b.change(func() { b.away = outbox.ErrUnavailable }) // all of it
		appendAll(t, q, outbox.Message{Topic: "away 0"})
		pass(time.Hour)
		b.change(func() { b.away = nil })
		pass(7 * time.Second)
		wantLag(t, q, 0, 0)
	})
}

func lastIndex(list []string, text string) int {
	for i, t := range slices.Backward(list) {
		if t == text {
			return i
		}
	}
	return -1
}

func TestRelay_WhileTheBrokerIsAwayNoMessageWaitsLongerThanThePause(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), &broker{away: outbox.ErrUnavailable}
		for i := range 200 {
			appendAll(t, q, outbox.Message{Topic: fmt.Sprint("topic ", i%7), Key: fmt.Sprint(i % 20), Payload: fmt.Append(nil, i)})
		}
		start(t, q, b, outbox.Config{Batch: 10})
		pass(time.Hour)
		if calls := b.asked(); calls > 3000 {
			t.Errorf("%d calls in an hour", calls)
		}
		b.change(func() { b.away = nil })
		pass(7 * time.Second)
		wantLag(t, q, 0, 0)
	})
}

func TestRelay_MoreTopicsThatAreAwayThanARelayRemembersHoldUpNoOthers(t *testing.T) {
	in(t, func(t *testing.T) {
		q := newMemQueue()
		var away atomic.Bool
		away.Store(true)
		b := &topicBroker{awayTopics: func(topic string) bool { return away.Load() && topic != "test" }}
		const waiting = 1200
		for i := range waiting {
			appendAll(t, q, outbox.Message{Topic: fmt.Sprint("away ", i)})
		}
		appendAll(t, q, message("", "a"))
		start(t, q, b, outbox.Config{Batch: 100, MaxAttempts: 2})
		pass(time.Minute)
		b.want(t, "a")
		b.change(func() { b.away = outbox.ErrUnavailable }) // now the broker is away
		pass(time.Minute)
		wantLag(t, q, waiting, 0)
		away.Store(false)
		b.change(func() { b.away = nil })
		pass(time.Minute + 7*time.Second)
		wantLag(t, q, 0, 0)
	})
}

// An error that only says that there was no more time is not the message's fault.
func TestRelay_ABrokerThatDoesNotRespondInTimeParksNothing(t *testing.T) {
	for _, timeout := range []error{context.DeadlineExceeded, fmt.Errorf("write: %w", os.ErrDeadlineExceeded)} {
		in(t, func(t *testing.T) {
			q, seen := newMemQueue(), new(events)
			var hangs atomic.Value
			hangs.Store("")
			b := new(broker)
			p := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) []error {
				errs := b.Publish(ctx, messages)
				for i, m := range messages {
					if strings.HasPrefix(string(m.Payload), hangs.Load().(string)) {
						<-ctx.Done()
						errs[i] = timeout
					}
				}
				return errs
			})
			appendAll(t, q, message("k", "slow 1"), message("k", "slow 2"), message("", "slow 3"))
			start(t, q, p, outbox.Config{MaxAttempts: 2, Observer: seen.observe})
			pass(time.Hour)
			wantLag(t, q, 3, 0)
			hangs.Store("slow")
			for i := range 60 {
				appendAll(t, q, message("", fmt.Sprint("quick ", i)))
				pass(time.Minute)
			}
			wantLag(t, q, 3, 0)
			if n := b.count("quick"); n != 60 {
				t.Errorf("%d messages were published", n)
			}
			hangs.Store("none")
			pass(2 * time.Minute) // for a call that hangs still, and MaxBackoff after it
			wantLag(t, q, 0, 0)
			if n := seen.count(outbox.OutcomeFailed); n != 0 {
				t.Errorf("%d failures were counted", n)
			}
		})
	}
}
