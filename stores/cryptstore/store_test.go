package cryptstore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestStore_KeepsTheRulesOfAStore(t *testing.T) {
	for name, cfg := range map[string]Config{"": {}, "with plaintext": {AcceptPlaintext: true}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) onlyonce.Store {
				cfg := cfg
				cfg.Keys = testKeys(t)
				return New(cfg).Wrap(memstore.New(memstore.Config{}))
			})
		})
	}
}

// newStore returns an encrypted store, and the one in which it keeps its records.
func newStore(t testing.TB, cfg Config) (hazard.Store, *memstore.Store) {
	t.Helper()
	c, _ := newCipher(t, cfg)
	inner := memstore.New(memstore.Config{})
	return c.Wrap(inner).(hazard.Store), inner
}

// put stores a record in the wrapped store as it is.
func put(t testing.TB, inner onlyonce.Store, c onlyonce.Claim, steps map[string][]byte, st onlyonce.Settlement) {
	t.Helper()
	r, err := inner.Claim(t.Context(), c)
	if err == nil && steps != nil {
		err = inner.Renew(t.Context(), hazard.Hold(r), time.Hour, steps)
	}
	if err == nil {
		err = inner.Settle(t.Context(), hazard.Hold(r), st)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// damages are settlements that a cipher has not made, by what is wrong with them.
func damages(c *Cipher, k *readyKey, id onlyonce.ID) map[string]onlyonce.Settlement {
	sealed := func(change func(s *onlyonce.Settlement)) onlyonce.Settlement {
		s := c.sealSettlement(k, id, onlyonce.Settlement{State: onlyonce.StateCompleted, Error: "e", Result: onlyonce.Result{Status: 201, Body: []byte("made"), Ref: "r"}, Keep: time.Hour}, nil)
		change(&s)
		return s
	}
	return map[string]onlyonce.Settlement{
		"a plain header":     sealed(func(s *onlyonce.Settlement) { s.Result.Header = map[string][]string{"A": {"b"}} }),
		"a cut result":       sealed(func(s *onlyonce.Settlement) { s.Result.Body = s.Result.Body[:len(s.Result.Body)-1] }),
		"another status":     sealed(func(s *onlyonce.Settlement) { s.Result.Status = 200 }),
		"another ref":        sealed(func(s *onlyonce.Settlement) { s.Result.Ref = "s" }),
		"another state":      sealed(func(s *onlyonce.Settlement) { s.State = onlyonce.StateFailed }),
		"an unknown outcome": sealed(func(s *onlyonce.Settlement) { s.State = onlyonce.StateUnknown }),
		"a final failure":    sealed(func(s *onlyonce.Settlement) { s.State, s.Final = onlyonce.StateFailed, true }),
		"a plain error":      sealed(func(s *onlyonce.Settlement) { s.Error = "e" }),
		"another command's":  c.sealSettlement(k, onlyonce.ID{Key: id.Key}, hazard.Completed, nil),
		"a removed result": sealed(func(s *onlyonce.Settlement) {
			s.Result.Body = k.seal(resultPlace(id, s.State, &s.Result, false, s.Error), nil, flagRemoved)
		}),
		"no payload": sealed(func(s *onlyonce.Settlement) {
			s.Result.Body = c.seal(k, resultPlace(id, s.State, &s.Result, false, s.Error), []byte("made"))
		}),
	}
}

func TestCorrupt_TheOutcomeIsUnknownUntilAPersonDecides(t *testing.T) {
	c, k := newCipher(t, Config{})
	for name, damage := range damages(c, k, hazard.Claim("k").ID) {
		inner := memstore.New(memstore.Config{})
		s := c.Wrap(inner).(hazard.Store)
		claim := hazard.Claim("k")
		put(t, inner, claim, nil, damage)
		hazard.CheckListedCorrupt(t, s, name)
		for f, want := range map[onlyonce.State]int{onlyonce.StateUnknown: 1, onlyonce.StateCompleted: 0, onlyonce.StateFailed: 0} {
			n := 0
			for _, err := range s.List(t.Context(), onlyonce.Filter{State: f, Limit: 5}) {
				if n++; err != nil {
					t.Error(err)
				}
			}
			if n != want {
				t.Errorf("%s: %d records are listed as %s, want %d", name, n, f, want)
			}
		}
		hazard.CheckCorrupt(t, s, name, claim.ID)
	}
}

func TestCorrupt_EveryPageOfAListIsThere(t *testing.T) {
	s, inner := newStore(t, Config{})
	hazard.CheckCorruptPages(t, s, func(id onlyonce.ID) {
		r, err := inner.Lookup(t.Context(), id)
		if err == nil {
			err = inner.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(magic)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// filterStore is a store that shows the filter of its last list.
type filterStore struct {
	*memstore.Store
	last onlyonce.Filter
}

func (s *filterStore) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	s.last = f
	return s.Store.List(ctx, f)
}

func TestList_OnlyUnknownOutcomesAreLookedForInEveryRecord(t *testing.T) {
	c, _ := newCipher(t, Config{})
	inner := &filterStore{Store: memstore.New(memstore.Config{})}
	s := c.Wrap(inner).(hazard.Store)
	for state, asked := range map[onlyonce.State]onlyonce.State{
		onlyonce.StateProcessing: onlyonce.StateProcessing,
		onlyonce.StateCompleted:  onlyonce.StateCompleted,
		onlyonce.StateFailed:     onlyonce.StateFailed,
		onlyonce.StateUnknown:    "",
		"":                       "",
	} {
		for _, err := range s.List(t.Context(), onlyonce.Filter{State: state, Tenant: "t", Limit: 3}) {
			t.Fatal(err)
		}
		if inner.last.State != asked || inner.last.Tenant != "t" {
			t.Errorf("a list of the state %q asked the wrapped store for %+v", state, inner.last)
		}
	}
}

func TestCorrupt_AClaimTakesItOverAsAnUnknownOutcomeOnly(t *testing.T) {
	c, k := newCipher(t, Config{})
	for name, damage := range damages(c, k, hazard.Claim("k").ID) {
		inner := memstore.New(memstore.Config{})
		s := c.Wrap(inner)
		first := hazard.Claim("k")
		put(t, inner, first, nil, damage)
		retry := hazard.Claim("k")
		retry.RetryFailed = true
		if r, err := s.Claim(t.Context(), retry); err != nil || r.Owner == retry.Owner || !r.Corrupt || r.State != onlyonce.StateUnknown {
			t.Errorf("%s: a claim that retries failures got %+v, error %v", name, r, err)
		}
		take := hazard.Claim("k")
		take.RetryFailed, take.TakeUnknown = true, true
		r, err := s.Claim(t.Context(), take)
		if err != nil || r.Owner != take.Owner || r.Attempt != 2 || r.State != onlyonce.StateProcessing || r.Corrupt {
			t.Errorf("%s: a claim that takes over got %+v, error %v", name, r, err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
			t.Errorf("%s: settle: %v", name, err)
		}
		if r, err := s.Lookup(t.Context(), first.ID); err != nil || r.State != onlyonce.StateCompleted || string(r.Result.Body) != "made" {
			t.Errorf("%s: after that, the record is %+v, error %v", name, r, err)
		}
	}
}

func TestCorrupt_WithoutResolveItIsNotTakenOver(t *testing.T) {
	c, k := newCipher(t, Config{})
	inner := memstore.New(memstore.Config{})
	s := c.Wrap(struct{ onlyonce.Store }{inner})
	put(t, inner, hazard.Claim("k"), nil, damages(c, k, hazard.Claim("k").ID)["a cut result"])
	g := onlyonce.New(s, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	_, err := onlyonce.Do(t.Context(), g, onlyonce.Request{ID: hazard.Claim("k").ID, SkipFingerprint: true}, func(context.Context) (string, error) {
		t.Error("the function ran")
		return "", nil
	})
	if !errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("do: error %v", err)
	}
}

func TestCorrupt_AStepThatCanNotBeReadRunsAgainOnce(t *testing.T) {
	c, k := newCipher(t, Config{})
	id := hazard.Claim("k").ID
	for name, state := range map[string]onlyonce.State{"unknown": onlyonce.StateUnknown, "failed": onlyonce.StateFailed, "completed": onlyonce.StateCompleted} {
		inner := memstore.New(memstore.Config{})
		s := c.Wrap(inner)
		steps := c.sealSteps(k, id, map[string][]byte{"charge": []byte(`"charged"`), "mail": []byte(`"mailed"`)})
		steps["mail"], steps["added"] = steps["charge"], []byte(magic)
		put(t, inner, hazard.Claim("k"), steps, c.sealSettlement(k, id, onlyonce.Settlement{State: state, Keep: time.Hour}, nil))
		if r, err := s.Lookup(t.Context(), id); err != nil || !r.Corrupt || len(r.Steps) != 1 || string(r.Steps["charge"]) != `"charged"` {
			t.Errorf("%s: it is %+v, error %v", name, r, err)
		}

		held := onlyonce.New(s, onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
		req := onlyonce.Request{ID: id, SkipFingerprint: true}
		ran, runs := map[string]int{}, 0
		command := func(ctx context.Context) (string, error) {
			runs++
			for _, step := range []string{"charge", "mail"} {
				if _, err := onlyonce.Step(ctx, step, func(context.Context) (string, error) {
					ran[step]++
					return step, nil
				}); err != nil {
					return "", err
				}
			}
			return "made", nil
		}
		if _, err := onlyonce.Do(t.Context(), held, req, command); !errors.Is(err, onlyonce.ErrCorrupt) || !errors.Is(err, onlyonce.ErrUnknown) {
			t.Errorf("%s: while it is held for a person, the error is %v", name, err)
		}
		g := onlyonce.New(s, onlyonce.Config{Observer: onlyonce.DiscardEvents})
		for range 3 {
			if a, err := onlyonce.Do(t.Context(), g, req, command); err != nil || a.Value != "made" {
				t.Errorf("%s: do: %+v, error %v", name, a, err)
			}
		}
		if ran["charge"] != 0 || ran["mail"] != 1 || runs != 1 {
			t.Errorf("%s: the command ran %d times, and its steps %v times", name, runs, ran)
		}
	}
}

func TestCorrupt_APersonsDecisionAlsoCoversSteps(t *testing.T) {
	c, k := newCipher(t, Config{})
	id := hazard.Claim("k").ID
	inner := memstore.New(memstore.Config{})
	s := c.Wrap(inner).(hazard.Store)
	put(t, inner, hazard.Claim("k"), map[string][]byte{"mail": []byte(magic)}, c.sealSettlement(k, id, hazard.Completed, nil))
	hazard.CheckCorrupt(t, s, "a step", id)
}

func TestCorrupt_WhileALeaseIsAliveAnAttemptHoldsIt(t *testing.T) {
	s, inner := newStore(t, Config{})
	c := hazard.Claim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"mail": []byte(magic)}); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateProcessing || r.Corrupt || len(r.Steps) != 0 {
		t.Errorf("while the lease is alive, it is %+v, error %v", r, err)
	}
	if err := inner.Renew(t.Context(), hazard.Hold(r), time.Nanosecond, nil); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateUnknown || !r.Corrupt {
		t.Errorf("after that, it is %+v, error %v", r, err)
	}
	if err := s.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateFailed}); err != nil {
		t.Errorf("resolve: %v", err)
	}
	if r, err = s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateFailed || r.Corrupt {
		t.Errorf("it was resolved as %+v, error %v", r, err)
	}
}

// switchedKeys are keys that can be replaced, or fail.
type switchedKeys struct{ now atomic.Value }

type switchedTo struct {
	keys *KeySet
	err  error
}

func (s *switchedKeys) Key(ctx context.Context, id string) (Key, error) {
	to := s.now.Load().(switchedTo)
	if to.err != nil {
		return Key{}, to.err
	}
	return to.keys.Key(ctx, id)
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
	keys := &switchedKeys{}
	keys.now.Store(switchedTo{keys: testKeys(t)})
	s := New(Config{Keys: keys}).Wrap(memstore.New(memstore.Config{}))
	c := hazard.Claim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	keys.now.Store(switchedTo{err: errors.New("no route to the key service")})
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
		t.Errorf("settle: %v", err)
	}
	hazard.CheckRepeats(t, s, map[onlyonce.ID]bool{c.ID: true})
}

func TestPlaintext_AnExistingStoreCanBeWrapped(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	c := hazard.Claim("k")
	st := onlyonce.Settlement{State: onlyonce.StateFailed, Final: true, Error: "no such article", Keep: time.Hour, Result: onlyonce.Result{Status: 404, Header: map[string][]string{"A": {"b"}}, Body: []byte("none")}}
	put(t, inner, c, map[string][]byte{"charge": []byte("1")}, st)
	put(t, inner, hazard.Claim("empty"), nil, onlyonce.Settlement{State: onlyonce.StateCompleted})

	put(t, inner, hazard.Claim("retryable"), map[string][]byte{"charge": []byte("1")}, onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no"})
	strict := New(Config{Keys: testKeys(t)}).Wrap(inner).(hazard.Store)
	for _, key := range []string{"k", "empty", "retryable"} {
		take := hazard.Claim(key)
		take.RetryFailed, take.TakeUnknown = true, true
		before, err := inner.Lookup(t.Context(), take.ID)
		if err != nil {
			t.Fatal(err)
		}
		_, looked := strict.Lookup(t.Context(), take.ID)
		_, claimed := strict.Claim(t.Context(), take)
		resolved := strict.Resolve(t.Context(), before, hazard.Completed)
		for doing, err := range map[string]error{"lookup": looked, "claim": claimed, "resolve": resolved} {
			if !errors.Is(err, ErrNotEncrypted) || !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("%s: %s: error %v", key, doing, err)
			}
		}
		if after, err := inner.Lookup(t.Context(), take.ID); err != nil || after.Owner != before.Owner || after.State != before.State {
			t.Errorf("%s: the record became %+v, error %v", key, after, err)
		}
	}
	s := New(Config{Keys: testKeys(t), AcceptPlaintext: true}).Wrap(inner)
	r, err := s.Lookup(t.Context(), c.ID)
	if err != nil || r.Corrupt || r.State != st.State || r.Error != st.Error || string(r.Result.Body) != "none" || r.Result.Header["A"][0] != "b" || string(r.Steps["charge"]) != "1" {
		t.Errorf("the record is %+v, error %v", r, err)
	}
	id := hazard.Run(t, s, "new")
	hazard.CheckRepeats(t, strict, map[onlyonce.ID]bool{id: true}) // it was encrypted
}

func TestPlaintext_WhatIsEncryptedIsStillChecked(t *testing.T) {
	c, k := newCipher(t, Config{AcceptPlaintext: true})
	for name, damage := range damages(c, k, hazard.Claim("k").ID) {
		inner := memstore.New(memstore.Config{})
		put(t, inner, hazard.Claim("k"), nil, damage)
		if r, err := c.Wrap(inner).Lookup(t.Context(), hazard.Claim("k").ID); err != nil || !r.Corrupt {
			t.Errorf("%s: the record is %+v, error %v", name, r, err)
		}
	}
}

func TestSettle_ARepeatIsTheSameSettlement(t *testing.T) {
	s, inner := newStore(t, Config{})
	c := hazard.Claim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for range 3 {
		if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
			t.Fatal(err)
		}
		stored, err := inner.Lookup(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(stored.Result.Body)
		}
		if string(stored.Result.Body) != first {
			t.Error("a repeat has replaced the result")
		}
	}
	hazard.CheckRepeats(t, s, map[onlyonce.ID]bool{c.ID: true})
}

// limited is a store that takes no larger bodies.
type limited struct {
	onlyonce.Store
	most int
}

func (l limited) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if len(st.Result.Body) > l.most {
		return onlyonce.ErrTooLarge
	}
	return l.Store.Settle(ctx, h, st)
}

func TestSettle_WhatIsTooLargeForTheStoreIsAnErrTooLarge(t *testing.T) {
	s := New(Config{Keys: testKeys(t), NoCompression: true}).Wrap(limited{memstore.New(memstore.Config{}), 1000})
	c := hazard.Claim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	st := hazard.Completed
	st.Result.Body = make([]byte, 1000)
	if err := s.Settle(t.Context(), hazard.Hold(r), st); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("settle: error %v", err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
		t.Errorf("settle with less: %v", err)
	}
	hazard.CheckRepeats(t, s, map[onlyonce.ID]bool{c.ID: true})
}

func TestConfig_AMistakePanics(t *testing.T) {
	hazard.CheckPanics(t, "cryptstore: Config.Keys is nil: set it to what KeysFromFile returns, or to other Keys", func() { New(Config{}) })
	hazard.CheckPanics(t, "cryptstore: Wrap got no store: pass memstore.New(memstore.Config{}) or another", func() { New(Config{Keys: testKeys(t)}).Wrap(nil) })
	hazard.CheckPanics(t, "cryptstore: WrapTx got no Cipher or no store: pass what New returns, and what sqlstore.Open or pgxstore.Open returns", func() { WrapTx[int](nil, nil) })
}

func TestPlaintext_AProgramWithoutKeysReplaysNoCiphertext(t *testing.T) {
	s, inner := newStore(t, Config{})
	for _, st := range []onlyonce.State{onlyonce.StateCompleted, onlyonce.StateFailed} {
		req := onlyonce.Request{ID: onlyonce.ID{Operation: "pay", Key: string(st)}, SkipFingerprint: true}
		a, err := onlyonce.New(s, onlyonce.Config{}).Begin(t.Context(), req)
		if err == nil {
			err = a.Settle(t.Context(), onlyonce.Settlement{State: st, Final: st == onlyonce.StateFailed, Result: onlyonce.Result{Status: 201, Body: []byte("made")}})
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err = onlyonce.New(inner, onlyonce.Config{}).Begin(t.Context(), req)
		if !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), "wrap the store with cryptstore") {
			t.Errorf("%s: a guard without keys got %+v, error %v", st, a, err)
		}
		if a, err = onlyonce.New(s, onlyonce.Config{}).Begin(t.Context(), req); err != nil || string(a.Record().Result.Body) != "made" {
			t.Errorf("%s: a guard with keys got error %v", st, err)
		}
	}
}
