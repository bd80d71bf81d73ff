package cryptstore

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// switchedKeys are keys that can be replaced, or fail.
type switchedKeys struct{ now atomic.Value }

type switchedTo struct {
	keys Keys
	err  error
}

func (s *switchedKeys) Key(ctx context.Context, id string) (Key, error) {
	to := s.now.Load().(switchedTo)
	if to.err != nil {
		return Key{}, to.err
	}
	return to.keys.Key(ctx, id)
}

// hangingKeys are keys that do not respond in time.
type hangingKeys struct{}

func (hangingKeys) Key(ctx context.Context, _ string) (Key, error) {
	<-ctx.Done()
	return Key{}, ctx.Err()
}

func keysOf(t testing.TB, keys ...Key) *KeySet {
	t.Helper()
	s, err := NewKeySet(keys[0], keys[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKeys_AfterARotationOldRecordsAreRead(t *testing.T) {
	a, b := testKey(t, "a", 1), testKey(t, "b", 2)
	inner := memstore.New(memstore.Config{})
	before := New(Config{Keys: keysOf(t, a)}).Wrap(inner)
	after := New(Config{Keys: keysOf(t, b, a)}).Wrap(inner)
	later := New(Config{Keys: keysOf(t, b)}).Wrap(inner)
	old := hazard.Run(t, before, "old")
	hazard.CheckRepeats(t, after, map[onlyonce.ID]bool{old: true})
	recent := hazard.Run(t, after, "recent")
	hazard.CheckRepeats(t, later, map[onlyonce.ID]bool{recent: true})
	if _, err := before.Lookup(t.Context(), recent); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without the new key: error %v", err)
	}
}

func TestKeys_WithoutTheKeyOfARecordNothingRunsAndNothingIsLost(t *testing.T) {
	a, b := testKey(t, "a", 1), testKey(t, "b", 2)
	for name, st := range map[string]onlyonce.Settlement{
		"completed": hazard.Completed,
		"failed":    {State: onlyonce.StateFailed, Error: "no stock", Keep: time.Hour},
		"unknown":   {State: onlyonce.StateUnknown, Error: "no response", Keep: time.Hour},
	} {
		inner := memstore.New(memstore.Config{})
		before := New(Config{Keys: keysOf(t, a)}).Wrap(inner)
		c := hazard.Claim("k")
		r, err := before.Claim(t.Context(), c)
		if err == nil {
			err = before.Settle(t.Context(), hazard.Hold(r), st)
		}
		if err != nil {
			t.Fatal(err)
		}
		was, err := inner.Lookup(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}

		for _, other := range []Key{b, testKey(t, "a", 2)} { // no key with that ID, or another one
			s := New(Config{Keys: keysOf(t, other)}).Wrap(inner).(hazard.Store)
			want := func(doing string, err error) {
				t.Helper()
				if !errors.Is(err, ErrUnknownKey) || !errors.Is(err, onlyonce.ErrUnavailable) || errors.Is(err, onlyonce.ErrCorrupt) || !strings.Contains(err.Error(), `"a"`) {
					t.Errorf("%s: %s: error %v", name, doing, err)
				}
			}
			greedy := hazard.Claim("k")
			greedy.RetryFailed, greedy.TakeUnknown = true, true
			_, err = s.Claim(t.Context(), greedy)
			want("claim", err)
			_, err = s.Lookup(t.Context(), c.ID)
			want("lookup", err)
			want("resolve", s.Resolve(t.Context(), was, onlyonce.Settlement{}))
			for _, err = range s.List(t.Context(), onlyonce.Filter{}) {
				want("list", err)
			}
			var outcomes []onlyonce.Outcome
			g := onlyonce.New(s, onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { outcomes = append(outcomes, e.Outcome) }})
			_, err = onlyonce.Do(t.Context(), g, onlyonce.Request{ID: c.ID, SkipFingerprint: true}, func(context.Context) (string, error) {
				t.Errorf("%s: the function ran", name)
				return "", nil
			})
			want("do", err)
			if !slices.Equal(outcomes, []onlyonce.Outcome{onlyonce.OutcomeUnavailable}) {
				t.Errorf("%s: the events are %v", name, outcomes)
			}
		}

		is, err := inner.Lookup(t.Context(), c.ID)
		if err != nil || is.Fence != was.Fence || is.Owner != was.Owner || is.State != st.State {
			t.Errorf("%s: the record became %+v, error %v", name, is, err)
		}
		again := New(Config{Keys: keysOf(t, b, a)}).Wrap(inner)
		if r, err := again.Lookup(t.Context(), c.ID); err != nil || r.State != st.State || string(r.Result.Body) != string(st.Result.Body) || r.Error != st.Error {
			t.Errorf("%s: with the key again, it is %+v, error %v", name, r, err)
		}
	}
}

func TestKeys_WithoutACurrentKeyNothingRuns(t *testing.T) {
	outage := errors.New("no route to the key service")
	keys := &switchedKeys{}
	keys.now.Store(switchedTo{err: outage})
	inner := memstore.New(memstore.Config{})
	s := New(Config{Keys: keys}).Wrap(inner)
	c := hazard.Claim("k")
	if _, err := s.Claim(t.Context(), c); !errors.Is(err, outage) || !errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("claim: error %v", err)
	}
	if _, err := inner.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("there is a record, error %v", err)
	}
}

func TestKeys_AnOutageAfterAClaimDoesNotLoseTheResult(t *testing.T) {
	for name, length := range map[string]time.Duration{"while the key is cached": time.Minute, "and then for longer": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			keys := &switchedKeys{}
			keys.now.Store(switchedTo{keys: testKeys(t)})
			s := New(Config{Keys: keys}).Wrap(memstore.New(memstore.Config{}))
			c := hazard.Claim("k")
			c.Lease = 2 * length
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			outage := errors.New("no route to the key service")
			keys.now.Store(switchedTo{err: outage})
			time.Sleep(length)
			if err := s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"charge": []byte("1")}); err != nil {
				t.Errorf("%s: renew: %v", name, err)
			}
			if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
				t.Errorf("%s: settle: %v", name, err)
			}
			time.Sleep(30 * time.Minute)
			if _, err := s.Claim(t.Context(), hazard.Claim("new")); !errors.Is(err, outage) {
				t.Errorf("%s: a claim on another command: error %v", name, err)
			}
			keys.now.Store(switchedTo{keys: testKeys(t)})
			time.Sleep(fetchWait)
			hazard.CheckRepeats(t, s, map[onlyonce.ID]bool{c.ID: true})
		})
	}
}

func TestKeys_KeysThatHangDoNotLoseWhatRunsWithAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := switchedTo{keys: testKeys(t)}
		keys := &switchedKeys{}
		keys.now.Store(up)
		s := New(Config{Keys: keys}).Wrap(memstore.New(memstore.Config{}))
		g := onlyonce.New(s, onlyonce.Config{Lease: 2 * time.Second, Observer: onlyonce.DiscardEvents})
		pay := func(ctx context.Context, key string, charge func(context.Context) (int, error)) (int, error) {
			id := onlyonce.ID{Tenant: "t", Operation: "pay", Key: key}
			got, err := onlyonce.Do(ctx, g, onlyonce.Request{ID: id, SkipFingerprint: true}, charge)
			return got.Value, err
		}
		for name, charge := range map[string]func(context.Context) (int, error){
			"a result": func(context.Context) (int, error) { return 1, nil },
			"a step": func(ctx context.Context) (int, error) {
				return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
			},
		} {
			runs := 0
			run := func(ctx context.Context) (int, error) {
				if runs++; runs == 1 {
					keys.now.Store(switchedTo{keys: hangingKeys{}})
				}
				time.Sleep(15 * time.Minute)
				return charge(ctx)
			}
			if got, err := pay(t.Context(), name, run); got != 1 || err != nil {
				t.Errorf("%s: the value is %d, error %v", name, got, err)
			}
			keys.now.Store(up)
			time.Sleep(time.Minute)
			if got, err := pay(t.Context(), name, run); got != 1 || err != nil || runs != 1 {
				t.Errorf("%s: a repeat got %d and error %v, after %d runs", name, got, err, runs)
			}
		}
	})
}

func TestKeys_ACommandOfWhichTheStoreHasARecordDoesNotRunUnprotected(t *testing.T) {
	a, b := New(Config{Keys: keysOf(t, testKey(t, "a", 1))}), New(Config{Keys: keysOf(t, testKey(t, "b", 2))})
	var none switchedKeys
	none.now.Store(switchedTo{err: errors.New("no route to the key service")})
	down := New(Config{Keys: &none})
	plain := func(store onlyonce.Store) onlyonce.Store { return store }
	for name, test := range map[string]struct {
		first, now func(onlyonce.Store) onlyonce.Store
	}{
		"the key of the record is missing":            {a.Wrap, b.Wrap},
		"the record is not encrypted":                 {plain, b.Wrap},
		"the current key is away":                     {a.Wrap, down.Wrap},
		"the current key is away, there is no record": {nil, down.Wrap},
	} {
		inner, runs := memstore.New(memstore.Config{}), 0
		post := func(wrap func(onlyonce.Store) onlyonce.Store) *httptest.ResponseRecorder {
			guard := onlyonce.New(wrap(inner), onlyonce.Config{Observer: onlyonce.DiscardEvents})
			pay := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })
			r, w := httptest.NewRequest("POST", "/pay", nil), httptest.NewRecorder()
			r.Header.Set("Idempotency-Key", "k")
			httponce.Wrap(guard, pay, httponce.Config{Tenant: httponce.SingleTenant, RunUnprotected: true}).ServeHTTP(w, r)
			return w
		}
		want := 200
		if test.first != nil {
			post(test.first)
			want = 503
		}
		if w := post(test.now); w.Code != want || runs != 1 {
			t.Errorf("%s: the response is %d, after %d runs", name, w.Code, runs)
		}
	}
}
