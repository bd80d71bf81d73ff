package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
