package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var caching = onlyonce.Config{CacheBytes: 1 << 20, Observer: onlyonce.DiscardEvents}

// A countedStore is a simStore that counts the claims that it gets, and can be down.
type countedStore struct {
	*chaosStore
	down bool
}

func newCountedStore() *countedStore {
	return &countedStore{chaosStore: &chaosStore{simStore: newSimStore()}}
}

func (s *countedStore) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if s.down {
		return onlyonce.Record{}, onlyonce.ErrUnavailable
	}
	return s.chaosStore.Claim(ctx, c)
}

// asked reports whether a call of do makes a call of the store.
func (s *countedStore) asked(do func()) bool {
	was := s.calls.Load()
	do()
	return s.calls.Load() != was
}

// returns is the function of a command that returns v.
func returns[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

func mustDo(t *testing.T, g *onlyonce.Guard, req onlyonce.Request, v string) onlyonce.Answer[string] {
	t.Helper()
	a, err := onlyonce.Do(t.Context(), g, req, returns(v))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCache_AReplayNeedsNoStore(t *testing.T) {
	for name, first := range map[string]func(*onlyonce.TxGuard[simRows], onlyonce.Request) error{
		"Do": func(g *onlyonce.TxGuard[simRows], req onlyonce.Request) error {
			_, err := onlyonce.Do(context.Background(), g.Guard, req, returns("made"))
			return err
		},
		"DoTx": func(g *onlyonce.TxGuard[simRows], req onlyonce.Request) error {
			_, err := onlyonce.DoTx(context.Background(), g, req, func(context.Context, simRows) (string, error) { return "made", nil })
			return err
		},
		"SettleTx": func(g *onlyonce.TxGuard[simRows], req onlyonce.Request) error {
			a, err := g.Begin(context.Background(), req)
			if err != nil {
				return err
			}
			return g.SettleTx(context.Background(), a, func(context.Context, simRows) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`"made"`)}}, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, log := newCountedStore(), &eventLog{}
				cfg := caching
				cfg.Observer = log.observe
				settler, reader := onlyonce.NewTx(s, cfg), onlyonce.NewTx(s, cfg)
				if err := first(settler, request("k")); err != nil {
					t.Fatal(err)
				}
				if !s.asked(func() { mustDo(t, reader.Guard, request("k"), "again") }) {
					t.Error("a Guard that has not seen the result did not ask the store")
				}
				log.expect(t, onlyonce.OutcomeExecuted, onlyonce.OutcomeReplayed)
				s.down = true
				for _, g := range []*onlyonce.TxGuard[simRows]{settler, reader} {
					if a := mustDo(t, g.Guard, request("k"), "again"); a.Value != "made" || !a.Replayed || a.Attempt != 1 {
						t.Errorf("the replay is %+v", a)
					}
					a, err := onlyonce.DoTx(t.Context(), g, request("k"), func(context.Context, simRows) (string, error) { return "again", nil })
					if err != nil || a.Value != "made" || !a.Replayed {
						t.Errorf("the replay of DoTx is %+v with error %v", a, err)
					}
				}
				log.expect(t, onlyonce.OutcomeExecuted, onlyonce.OutcomeReplayed, onlyonce.OutcomeReplayed, onlyonce.OutcomeReplayed, onlyonce.OutcomeReplayed, onlyonce.OutcomeReplayed)
				if n := settler.InFlight() + reader.InFlight(); n != 0 {
					t.Errorf("%d requests are in flight", n)
				}
			})
		})
	}
}

func TestCache_WithoutOneEveryReplayAsksTheStore(t *testing.T) {
	s := newCountedStore()
	g := onlyonce.New(s, onlyonce.Config{CacheMaxAge: time.Hour})
	mustDo(t, g, request("k"), "made")
	if !s.asked(func() { mustDo(t, g, request("k"), "again") }) {
		t.Error("the store was not asked")
	}
}

// TestCache_AReplayIsLikeOneFromTheStore compares the records, the errors and the events.
func TestCache_AReplayIsLikeOneFromTheStore(t *testing.T) {
	other, skips := request("k"), request("k")
	other.Fingerprint = onlyonce.Fingerprint([]byte("another body"))
	skips.Fingerprint, skips.SkipFingerprint = nil, true
	for name, c := range map[string]struct {
		req  onlyonce.Request
		want error
	}{
		"a replay":               {request("k"), nil},
		"a mismatch":             {other, onlyonce.ErrMismatch},
		"one that does not care": {skips, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCountedStore()
				a, err := onlyonce.New(s, onlyonce.Config{}).Begin(t.Context(), onlyonce.Request{
					ID: request("k").ID, Fingerprint: request("k").Fingerprint, Summary: "17 apples", Keep: time.Hour,
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := a.Settle(t.Context(), cachedResult); err != nil {
					t.Fatal(err)
				}
				var events [2]onlyonce.Event
				var errs [2]error
				guards := [2]*onlyonce.Guard{}
				for i, bytes := range []int64{0, 1 << 20} {
					guards[i] = onlyonce.New(s, onlyonce.Config{CacheBytes: bytes, Observer: func(_ context.Context, e onlyonce.Event) { events[i] = e }})
				}
				if _, err := guards[1].Begin(t.Context(), request("k")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				for i, g := range guards {
					if asked := s.asked(func() { _, errs[i] = g.Begin(t.Context(), c.req) }); asked != (i == 0) {
						t.Errorf("the store was asked: %v", asked)
					}
				}
				if fmt.Sprintf("%#v", events[0]) != fmt.Sprintf("%#v", events[1]) {
					t.Errorf("the event is\n%#v, want\n%#v", events[1], events[0])
				}
				if !errors.Is(errs[1], c.want) || fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
					t.Errorf("the error is %v, want %v", errs[1], errs[0])
				}
			})
		})
	}
}

func TestCache_AnotherIDHasItsOwnResult(t *testing.T) {
	g := onlyonce.New(newCountedStore(), caching)
	for i, id := range []onlyonce.ID{{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"}, {"a", "bc", "c"}, {"a", "b", "cc"}, {"A", "b", "c"}, {"a ", "b", "c"}} {
		req := request("k")
		req.ID = id
		if a := mustDo(t, g, req, fmt.Sprint(i)); a.Replayed {
			t.Errorf("%q got %q", id, a.Value)
		}
	}
}

// TestCache_WritingIntoAResultChangesNothingForOthers writes into what was settled, into what
// the store returned, and into what was replayed from memory.
func TestCache_WritingIntoAResultChangesNothingForOthers(t *testing.T) {
	spoil := func(r onlyonce.Result) {
		clear(r.Body)
		for name := range r.Header {
			r.Header[name][0] = "spoiled"
		}
		if r.Header != nil {
			r.Header["More"] = []string{"spoiled"}
		}
	}
	s := newCountedStore()
	settler, reader := onlyonce.New(s, caching), onlyonce.New(s, caching)
	settlement := cachedResult
	settlement.Result.Body = []byte("the response")
	settlement.Result.Header = map[string][]string{"Location": {"/orders/1"}}
	want := fmt.Sprintf("%+v", settlement.Result)
	a, err := settler.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(t.Context(), settlement); err != nil {
		t.Fatal(err)
	}
	stored := lookup(t, s, request("k"))
	if _, err := reader.Begin(t.Context(), request("k")); err != nil {
		t.Fatal(err)
	}
	spoil(settlement.Result)
	spoil(stored.Result) // the record that the store has, as a copy would be
	for _, g := range []*onlyonce.Guard{settler, reader, settler, reader} {
		if s.asked(func() { a, err = g.Begin(t.Context(), request("k")) }) || err != nil {
			t.Fatalf("the store was asked, or error %v", err)
		}
		got, ok := a.Result()
		if text := fmt.Sprintf("%+v", got); text != want || !ok {
			t.Errorf("the result is %s, want %s", text, want)
		}
		spoil(got)
	}
}

// TestCache_WaitersGetTheResultFromMemory lets many callers wait for one attempt.
func TestCache_WaitersGetTheResultFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore()
		cfg := caching
		cfg.Wait = time.Minute
		g := onlyonce.New(s, cfg)
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { mustDo(t, g, request("k"), "again") })
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		was := s.calls.Load()
		if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`"made"`)}}); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if n := s.calls.Load() - was; n > 2 { // the settlement, and a poll that is in progress
			t.Errorf("the store was called %d times", n)
		}
	})
}

func TestCache_ACallerThatHasLeftGetsNoReplay(t *testing.T) {
	s := newCountedStore()
	g := onlyonce.New(s, caching)
	mustDo(t, g, request("k"), "made")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Begin(ctx, request("k")); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestConfig_ACacheOfNegativeSizeOrAgeIsRejected(t *testing.T) {
	for field, cfg := range map[string]onlyonce.Config{"CacheBytes": {CacheBytes: -1}, "CacheMaxAge": {CacheMaxAge: -1}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "onlyonce: Config."+field+" is negative") {
					t.Errorf("the panic says %q", text)
				}
			}()
			onlyonce.New(newStore(), cfg)
		}()
	}
}
