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

// TestCache_OnlyWhatNoClaimCanChangeIsKept settles in every way by one Guard, and asks
// another one, which replays failures, twice.
func TestCache_OnlyWhatNoClaimCanChangeIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		s    onlyonce.Settlement
		kept bool
	}{
		"completed":     {onlyonce.Settlement{State: onlyonce.StateCompleted}, true},
		"final failure": {onlyonce.Settlement{State: onlyonce.StateFailed, Final: true}, true},
		"failed":        {onlyonce.Settlement{State: onlyonce.StateFailed}, false},
		"unknown":       {onlyonce.Settlement{State: onlyonce.StateUnknown}, false},
		"released":      {onlyonce.Settlement{}, false},
		"running":       {onlyonce.Settlement{State: onlyonce.StateProcessing}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCountedStore()
				settler := onlyonce.New(s, caching)
				cfg := caching
				cfg.KeepFailures, cfg.HoldUnknown = true, true
				reader := onlyonce.New(s, cfg)
				a, err := settler.Begin(t.Context(), request("k"))
				if err != nil {
					t.Fatal(err)
				}
				if c.s.State != onlyonce.StateProcessing {
					if err := a.Settle(t.Context(), c.s); err != nil {
						t.Fatal(err)
					}
				}
				for _, g := range []*onlyonce.Guard{settler, reader} {
					begin := func() {
						if a, err := g.Begin(t.Context(), request("k")); err == nil && !a.Replayed() {
							if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
								t.Fatal(err)
							}
						}
					}
					begin()
					if asked := s.asked(begin); asked == c.kept {
						t.Errorf("the store was asked: %v", asked)
					}
				}
			})
		})
	}
}

// TestCache_NothingIsKeptThatTheStoreMayNotHave lets the store fail a settlement.
func TestCache_NothingIsKeptThatTheStoreMayNotHave(t *testing.T) {
	for name, fault := range map[string]func(func() error) error{
		"the store is down": down,
		"the lease is lost": func(func() error) error { return onlyonce.ErrLost },
		"it is too large":   func(func() error) error { return onlyonce.ErrTooLarge },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, cfg := newStore(), caching
				cfg.CacheMaxAge = time.Hour
				g := onlyonce.New(s, cfg)
				s.settle = fault
				_, _ = onlyonce.Do(t.Context(), g, request("k"), returns("made"))
				s.set(func() { s.settle = nil })
				time.Sleep(onlyonce.DefaultLease)
				if a := mustDo(t, g, request("k"), "again"); a.Replayed {
					t.Errorf("%q was replayed, which is not recorded", a.Value)
				}
			})
		})
	}
}

func TestCache_ATransactionThatWasNotCommittedIsNotKept(t *testing.T) {
	for name, err := range map[string]error{"lost": onlyonce.ErrLost, "in doubt": onlyonce.ErrInDoubt, "down": errDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, cfg := newCountedStore(), caching
				cfg.CacheMaxAge = time.Hour
				g := onlyonce.NewTx(rollingBack{s, err}, cfg)
				complete := func(context.Context, simRows) (onlyonce.Settlement, error) {
					return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`"made"`)}}, nil
				}
				a, err := g.Begin(t.Context(), request("k"))
				if err != nil {
					t.Fatal(err)
				}
				if g.SettleTx(t.Context(), a, complete) == nil {
					t.Fatal("no error")
				}
				if _, err := g.BeginTx(t.Context(), request("l"), complete); err == nil {
					t.Fatal("no error")
				}
				time.Sleep(onlyonce.DefaultLease)
				for _, key := range []string{"k", "l"} {
					if a := mustDo(t, g.Guard, request(key), "again"); a.Replayed {
						t.Errorf("%q was replayed, which was not committed", a.Value)
					}
				}
			})
		})
	}
}

// A rollingBack store rolls back every transaction.
type rollingBack struct {
	*countedStore
	err error
}

func (s rollingBack) SettleTx(ctx context.Context, _ onlyonce.Hold, fn func(context.Context, simRows) (onlyonce.Settlement, error)) error {
	_, err := fn(ctx, simRows{})
	return errors.Join(s.err, err)
}

func (s rollingBack) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, simRows, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	_, err := fn(ctx, simRows{}, c.Next(nil))
	return onlyonce.Record{}, errors.Join(s.err, err)
}

func TestCache_AResultIsReplayedForTheMaximumAgeAndNoLonger(t *testing.T) {
	for name, c := range map[string]struct {
		set, age time.Duration
		change   func(onlyonce.Settlement) onlyonce.Settlement
	}{
		"deleted":       {0, onlyonce.DefaultCacheMaxAge, func(onlyonce.Settlement) onlyonce.Settlement { return onlyonce.Settlement{} }},
		"deleted, set":  {3 * time.Second, 3 * time.Second, func(onlyonce.Settlement) onlyonce.Settlement { return onlyonce.Settlement{} }},
		"resolved anew": {0, onlyonce.DefaultCacheMaxAge, func(s onlyonce.Settlement) onlyonce.Settlement { s.Result.Body = []byte(`"resolved"`); return s }},
		"made to be rerun": {0, onlyonce.DefaultCacheMaxAge, func(onlyonce.Settlement) onlyonce.Settlement {
			return onlyonce.Settlement{State: onlyonce.StateFailed, Keep: time.Hour}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCountedStore()
				cfg := caching
				cfg.CacheMaxAge = c.set
				g := onlyonce.New(s, cfg)
				mustDo(t, g, request("k"), "made")
				s.change(t, request("k").ID, c.change(onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}))
				for passed := time.Duration(0); passed < c.age; passed += 500 * time.Millisecond {
					if a := mustDo(t, g, request("k"), "again"); a.Value != "made" {
						t.Errorf("after %v, the response is %+v", passed, a)
					}
					time.Sleep(500 * time.Millisecond)
				}
				if a := mustDo(t, g, request("k"), "again"); a.Value == "made" {
					t.Errorf("after %v, the response is still %+v", c.age, a)
				}
			})
		})
	}
}

// change changes a settled record as a person's decision does, in another process.
func (s *simStore) change(t *testing.T, id onlyonce.ID, st onlyonce.Settlement) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	if r == nil {
		t.Fatal("there is no record")
	}
	changed := *r
	s.fence++
	changed.Owner, changed.Fence = fmt.Sprintf("decision %07d", s.fence%1e7), s.fence
	s.end(&changed, st)
}

// TestCache_ARecordIsNotReplayedPastItsKeep wants the store to be asked from three quarters of
// the Keep on, and nothing to be kept whose response took longer than that.
func TestCache_ARecordIsNotReplayedPastItsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore()
		g := onlyonce.New(s, caching)
		req := request("k")
		req.Keep = 4 * time.Second
		mustDo(t, g, req, "made")
		time.Sleep(3*time.Second - 1)
		if s.asked(func() { mustDo(t, g, req, "again") }) {
			t.Error("the store was asked before three quarters of the Keep")
		}
		a, err := g.Begin(t.Context(), req)
		if left := a.Record().KeepLeft; err != nil || left != time.Second+1 {
			t.Errorf("KeepLeft is %v with error %v", left, err)
		}
		time.Sleep(time.Nanosecond)
		if !s.asked(func() { mustDo(t, g, req, "again") }) {
			t.Error("the store was not asked after three quarters of the Keep")
		}
		time.Sleep(750*time.Millisecond - 1)
		if s.asked(func() { mustDo(t, g, req, "again") }) {
			t.Error("the store was asked before three quarters of the rest")
		}
		time.Sleep(250*time.Millisecond + 1)
		if a := mustDo(t, g, req, "again"); a.Replayed {
			t.Errorf("the expired record was replayed: %+v", a)
		}
	})
}

// TestCache_TheTimeOfACallCounts lets the response of a claim and of a settlement be late.
func TestCache_TheTimeOfACallCounts(t *testing.T) {
	late := func(do func() error) error {
		err := do()
		time.Sleep(3 * time.Second)
		return err
	}
	req := request("k")
	req.Keep = 4 * time.Second
	for name, see := range map[string]func(*testing.T, *faultyStore, *onlyonce.Guard){
		"claim": func(t *testing.T, s *faultyStore, g *onlyonce.Guard) {
			mustDo(t, onlyonce.New(s, caching), req, "made")
			s.claim = times(1, late)
			mustDo(t, g, req, "again")
		},
		"settlement": func(t *testing.T, s *faultyStore, g *onlyonce.Guard) {
			s.settle = times(1, late)
			mustDo(t, g, req, "made")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				g := onlyonce.New(s, caching)
				see(t, s, g)
				time.Sleep(time.Second)
				if a := mustDo(t, g, req, "again"); a.Replayed {
					t.Errorf("the expired record was replayed: %+v", a)
				}
			})
		})
	}
}

func TestCache_ForgetAsksTheStoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore()
		g := onlyonce.New(s, caching)
		for _, key := range []string{"k", "l"} {
			mustDo(t, g, request(key), "made")
		}
		s.change(t, request("k").ID, onlyonce.Settlement{})
		g.Forget(request("k").ID)
		if a := mustDo(t, g, request("k"), "again"); a.Value != "again" {
			t.Errorf("the response is %+v", a)
		}
		if s.asked(func() { mustDo(t, g, request("l"), "again") }) {
			t.Error("the other command was forgotten, too")
		}
		onlyonce.New(s, onlyonce.Config{}).Forget(request("k").ID) // keeps nothing
	})
}

// TestCache_ForgetIsNotUndoneByACallThatBeganBefore holds back the response of a claim, or of
// a settlement, until the record was deleted and forgotten.
func TestCache_ForgetIsNotUndoneByACallThatBeganBefore(t *testing.T) {
	held := func(do func() error) error {
		err := do()
		time.Sleep(time.Second)
		return err
	}
	for name, settles := range map[string]bool{"claim": false, "settlement": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				g := onlyonce.New(s, caching)
				if settles {
					s.settle = times(1, held)
				} else {
					mustDo(t, onlyonce.New(s, caching), request("k"), "made")
					s.claim = times(1, held)
				}
				var first sync.WaitGroup
				first.Go(func() { mustDo(t, g, request("k"), "made") })
				time.Sleep(500 * time.Millisecond)
				rec := lookup(t, s, request("k"))
				if err := s.Resolve(t.Context(), rec, onlyonce.Settlement{}); err != nil {
					t.Fatal(err)
				}
				g.Forget(request("k").ID)
				first.Wait()
				if a := mustDo(t, g, request("k"), "again"); a.Replayed {
					t.Errorf("the response of before was kept: %+v", a)
				}
			})
		})
	}
}

// TestCache_AnEarlierRecordDoesNotReplaceALaterOne holds back the response of a claim until the
// command was deleted and has run again.
func TestCache_AnEarlierRecordDoesNotReplaceALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		g := onlyonce.New(s, caching)
		mustDo(t, onlyonce.New(s, caching), request("k"), "made")
		s.claim = times(1, func(do func() error) error {
			err := do()
			time.Sleep(time.Second)
			return err
		})
		var first sync.WaitGroup
		first.Go(func() { mustDo(t, g, request("k"), "never") })
		time.Sleep(500 * time.Millisecond)
		if err := s.Resolve(t.Context(), lookup(t, s, request("k")), onlyonce.Settlement{}); err != nil {
			t.Fatal(err)
		}
		mustDo(t, g, request("k"), "again")
		first.Wait()
		if a := mustDo(t, g, request("k"), "never"); a.Value != "again" {
			t.Errorf("the response is %+v, after one that was made later", a)
		}
	})
}

func TestCache_APurgeForgetsWhatTheStoreSaysHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		g := onlyonce.New(purgedStore{s}, caching)
		mustDo(t, g, request("k"), "made")
		if _, err := g.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := mustDo(t, g, request("k"), "again"); a.Replayed {
			t.Errorf("the purged record was replayed: %+v", a)
		}
	})
}

// A purgedStore's clock is so far ahead that a purge deletes every record.
type purgedStore struct{ *faultyStore }

func (s purgedStore) Purge(ctx context.Context, _ int) (n int, err error) {
	for r, err := range s.List(ctx, onlyonce.Filter{}) {
		if err == nil {
			err = s.Resolve(ctx, r, onlyonce.Settlement{})
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
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
