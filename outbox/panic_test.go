package outbox_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

// quiet keeps the stacks of a test's panics out of its output.
func quiet(t *testing.T) {
	log := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	t.Cleanup(func() { slog.SetDefault(log) })
}

// A panicking broker sends the messages before a poisonous one, and then panics.
type panickingBroker struct{ *broker }

func (b panickingBroker) Publish(ctx context.Context, messages []outbox.Message) []error {
	for i, m := range messages {
		if string(m.Payload) == "poison" {
			b.broker.Publish(ctx, messages[:i])
			panic("a broker's bug")
		}
	}
	return b.broker.Publish(ctx, messages)
}

func TestRelay_AMessageAtWhichThePublisherPanicsFailsAloneAndIsParked(t *testing.T) {
	quiet(t)
	in(t, func(t *testing.T) {
		q, b, e := newMemQueue(), new(broker), new(events)
		appendAll(t, q, message("k", "1"), message("", "a"), message("", "poison"), message("k", "2"), message("", "b"), message("", "c"))
		start(t, q, panickingBroker{b}, outbox.Config{MaxAttempts: 3, Observer: e.observe})
		pass(time.Minute)
		wantLag(t, q, 0, 1)
		parked, err := q.Parked(t.Context(), 0, 10)
		if err != nil || len(parked) != 1 || string(parked[0].Payload) != "poison" || parked[0].Attempts != 3 || !strings.Contains(parked[0].Error, "a broker's bug") {
			t.Errorf("parked: %+v, %v", parked, err)
		}
		if n := e.count(outbox.OutcomePublished); n != 5 {
			t.Errorf("%d are published", n)
		}
		if got := strings.Join(b.payloads(), ""); strings.Index(got, "1") > strings.Index(got, "2") || strings.LastIndex(got, "1") > strings.Index(got, "2") {
			t.Errorf("published in the order %s", got)
		}
	})
}

func TestRelay_APublisherThatAlwaysPanicsFailsEachMessageAndTheRelayStops(t *testing.T) {
	quiet(t)
	in(t, func(t *testing.T) {
		q := newMemQueue()
		appendAll(t, q, message("", "a"), message("", "b"), message("", "c"))
		stop := start(t, q, outbox.PublisherFunc(func(context.Context, []outbox.Message) []error {
			panic(errors.New("no broker"))
		}), outbox.Config{MaxAttempts: 2})
		pass(time.Minute)
		wantLag(t, q, 0, 3)
		stop()
	})
}

func TestRelay_AnObserverThatPanicsDisturbsNothing(t *testing.T) {
	quiet(t)
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		appendAll(t, q, message("", "a"), message("", "b"))
		b.change(func() { b.fail = map[string]error{"b": errors.New("no")} })
		start(t, q, b, outbox.Config{MaxAttempts: 2, Observer: func(context.Context, outbox.Event) { panic("an observer's bug") }})
		pass(time.Minute)
		b.want(t, "a")
		wantLag(t, q, 0, 1)
	})
}

func TestRelay_AMessageAtWhichThePublisherEndsItsGoroutineFailsAloneAndIsParked(t *testing.T) {
	in(t, func(t *testing.T) {
		q, b := newMemQueue(), new(broker)
		appendAll(t, q, message("", "a"), message("", "poison"), message("", "b"))
		start(t, q, outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) []error {
			if slices.ContainsFunc(messages, func(m outbox.Message) bool { return string(m.Payload) == "poison" }) {
				runtime.Goexit()
			}
			return b.Publish(ctx, messages)
		}), outbox.Config{MaxAttempts: 2})
		pass(time.Minute)
		b.want(t, "a", "b")
		wantLag(t, q, 0, 1)
	})
}

// A hollow error panics as a nil pointer does whose method Error reads a field.
type hollow struct{}

func (hollow) Error() string { panic("there is no text") }

func TestRelay_AMessageWhoseErrorPanicsFailsAloneAndIsParked(t *testing.T) {
	for name, err := range map[string]error{"Error": hollow{}, "Unwrap": (*net.OpError)(nil)} {
		t.Run(name, func(t *testing.T) {
			quiet(t)
			in(t, func(t *testing.T) {
				q, b := newMemQueue(), new(broker)
				appendAll(t, q, message("", "a"), message("", "poison"), message("", "b"))
				b.change(func() { b.fail = map[string]error{"poison": err} })
				start(t, q, b, outbox.Config{MaxAttempts: 2})
				pass(time.Minute)
				if got := slices.Compact(slices.Sorted(slices.Values(b.payloads()))); !slices.Equal(got, []string{"a", "b"}) {
					t.Errorf("published %q", got)
				}
				wantLag(t, q, 0, 1)
			})
		})
	}
}
