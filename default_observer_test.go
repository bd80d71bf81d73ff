package onlyonce_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// withDefaultLog runs f, which needs the default logger for itself, and returns the lines
// that were logged.
func withDefaultLog(t *testing.T, f func()) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	f()
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

// outcomes has for each name a function that runs commands of a Guard with that outcome.
var outcomes = map[string]func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]){
	"executed, replayed and mismatched": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		one := func(context.Context) (int, error) { return 1, nil }
		other := request("k")
		other.Fingerprint = []byte{1}
		for _, req := range []onlyonce.Request{request("k"), request("k"), other} {
			_, _ = onlyonce.Do(t.Context(), g.Guard, req, one)
		}
	},
	"in flight": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(ctx context.Context) (int, error) {
			_, err := onlyonce.Do(ctx, g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
			if !errors.Is(err, onlyonce.ErrInFlight) {
				t.Error(err)
			}
			return 1, nil
		})
	},
	"released": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		_, _ = g.BeginTx(t.Context(), request("k"), func(context.Context, entry) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{}, errors.New("the handler responded with 400")
		})
	},
	"failed": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 0, errors.New("no stock") })
	},
	"failed in a transaction": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		_, _ = onlyonce.DoTx(t.Context(), g, request("k"), func(context.Context, entry) (int, error) { return 0, errors.New("no stock") })
	},
	"unknown": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 0, onlyonce.Unknown(errors.New("no response")) })
	},
	"unknown, then held": func(t *testing.T, _ *ledger, g *onlyonce.TxGuard[entry]) {
		for range 2 {
			_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 0, onlyonce.Unknown(errors.New("no response")) })
		}
	},
	"taken over": func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]) {
		crash(t, s, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
	},
	"unrecorded": func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]) {
		s.set(func() { s.settle = func(func() error) error { return errDown } })
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
	},
	"lost": func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]) {
		s.set(func() { s.settle = func(func() error) error { return onlyonce.ErrLost } })
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
	},
	"the store is away": func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]) {
		s.set(func() { s.claim = func(func() error) error { return errDown } })
		_, _ = onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
	},
	"the store is away for longer than a caller waits": func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		s.set(func() { s.claim = func(func() error) error { <-ctx.Done(); return ctx.Err() } })
		_, _ = onlyonce.Do(ctx, g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
	},
	"a caller leaves": func(t *testing.T, s *ledger, g *onlyonce.TxGuard[entry]) {
		ctx, leave := context.WithCancel(t.Context())
		s.set(func() { s.claim = func(func() error) error { leave(); return ctx.Err() } })
		_, _ = onlyonce.Do(ctx, g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
	},
}

func TestDefaultObserver_WhatWentWrongIsLoggedAndNothingElse(t *testing.T) {
	for name, want := range map[string][]string{
		"executed, replayed and mismatched": nil,
		"in flight":                         nil,
		"released":                          nil,
		"a caller leaves":                   nil,
		"failed":                            {"WARN idempotency failed: no stock"},
		"failed in a transaction":           {"WARN idempotency failed: no stock"},
		"unknown":                           {"ERROR idempotency unknown: no response"},
		"taken over":                        {"WARN idempotency taken_over: "},
		"unrecorded":                        {"ERROR idempotency unrecorded: store is down"},
		"lost":                              {"ERROR idempotency lost: the lease was lost: another attempt may be running"},
		"the store is away":                 {"ERROR idempotency unavailable: store is down"},
		"the store is away for longer than a caller waits": {"ERROR idempotency unavailable: context deadline exceeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			run := func(o onlyonce.Observer) []map[string]any {
				return withDefaultLog(t, func() {
					s := newLedger()
					outcomes[name](t, s, onlyonce.NewTx(s, onlyonce.Config{Observer: o, HoldUnknown: strings.HasSuffix(name, "held")}))
				})
			}
			var got []string
			for _, l := range run(nil) {
				text, _ := l["error"].(string)
				got = append(got, l["level"].(string)+" "+l["msg"].(string)+": "+text)
				hash := request("k").ID.Hash()
				_, timed := l["duration_ms"].(float64)
				if l["operation"] != request("k").ID.Operation || l["record_id"] != hex.EncodeToString(hash[:8]) || !timed {
					t.Errorf("%s: %v", name, l)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: logged %q, want %q", name, got, want)
			}
			if lines := run(onlyonce.DiscardEvents); len(lines) != 0 {
				t.Errorf("%s: with DiscardEvents, logged %v", name, lines)
			}
		})
	}
}

func TestDefaultObserver_APurgeThatFailsIsLoggedAndOneThatEndsEarlyIsNot(t *testing.T) {
	lines := withDefaultLog(t, func() {
		g := onlyonce.New(purgeless{newStore()}, onlyonce.Config{})
		if _, err := g.Purge(t.Context()); !errors.Is(err, errDown) {
			t.Error(err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := g.Purge(ended); !errors.Is(err, errDown) {
			t.Error(err)
		}
		if _, err := onlyonce.New(newStore(), onlyonce.Config{}).Purge(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if len(lines) != 1 || lines[0]["level"] != "WARN" || lines[0]["event"] != "idempotency_purged" || lines[0]["error"] != "store is down" {
		t.Errorf("%v", lines)
	}
}

// A purgeless store can't purge.
type purgeless struct{ *faultyStore }

func (purgeless) Purge(context.Context, int) (int, error) { return 0, errDown }

func TestDefaultObserver_ADecisionThatIsNotLoggedAllocatesNothing(t *testing.T) {
	const replays = 100
	with := func(o onlyonce.Observer) float64 {
		g := onlyonce.New(newStore(), onlyonce.Config{Observer: o})
		one := func(context.Context) (int, error) { return 1, nil }
		return testing.AllocsPerRun(10, func() {
			for range replays {
				_, _ = onlyonce.Do(t.Context(), g, request("k"), one)
			}
		})
	}
	// One more allocation per replay would be as many as replays. Pools make the number vary a little.
	if byDefault, discarded := with(nil), with(onlyonce.DiscardEvents); byDefault > discarded+replays/2 {
		t.Errorf("%v allocations for %d replays without an Observer, %v with one that does nothing", byDefault, replays, discarded)
	}
}
