package onlyonce_test

import (
	"context"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

type traceKey struct{}

// traced returns a context whose trace context is text.
func traced(t *testing.T, text string) context.Context {
	return context.WithValue(t.Context(), traceKey{}, text)
}

func traceOf(ctx context.Context) string {
	text, _ := ctx.Value(traceKey{}).(string)
	return text
}

func TestTraceparent_AReplayHasThatOfTheAttemptThatRan(t *testing.T) {
	var log eventLog
	var events []onlyonce.Event
	l := newLedger()
	cfg := onlyonce.Config{Traceparent: traceOf, Observer: onlyonce.Tee(log.observe, func(_ context.Context, e onlyonce.Event) { events = append(events, e) })}
	g := onlyonce.NewTx(l, cfg)
	for key, run := range map[string]func(ctx context.Context) error{
		"do": func(ctx context.Context) error {
			_, err := onlyonce.Do(ctx, g.Guard, request("do"), func(context.Context) (int, error) { return 1, nil })
			return err
		},
		"tx": func(ctx context.Context) error {
			_, err := onlyonce.DoTx(ctx, g, request("tx"), func(context.Context, entry) (int, error) { return 1, nil })
			return err
		},
		"taken over": func(ctx context.Context) error {
			_, err := onlyonce.Do(ctx, g.Guard, request("taken over"), func(context.Context) (int, error) { return 1, nil })
			return err
		},
	} {
		if key == "taken over" {
			crash(t, l, request(key), time.Nanosecond)
		}
		for _, ctx := range []context.Context{traced(t, traceparent), traced(t, "00-11111111111111111111111111111111-2222222222222222-01"), t.Context()} {
			if err := run(ctx); err != nil {
				t.Fatal(err)
			}
			if e := events[len(events)-1]; e.Record.Result.Traceparent != traceparent {
				t.Errorf("%s: the event %s has the traceparent %q", key, e.Outcome, e.Record.Result.Traceparent)
			}
		}
		if r := lookup(t, l, request(key)); r.Result.Traceparent != traceparent {
			t.Errorf("%s: the record has the traceparent %q", key, r.Result.Traceparent)
		}
	}
}

func TestTraceparent_AnythingElseIsNotKept(t *testing.T) {
	for _, text := range []string{
		"", "00", traceparent + "-x", "01" + traceparent[2:], traceparent[:54] + "g", traceparent[:54] + "\n",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
		"00-4bf92f35-7b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	} {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Traceparent: traceOf})
		if _, err := onlyonce.Do(traced(t, text), g, request("k"), func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		if r := lookup(t, store, request("k")); r.Result.Traceparent != "" {
			t.Errorf("%q is kept as %q", text, r.Result.Traceparent)
		}
	}
}
