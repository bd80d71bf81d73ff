package cryptstore

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// damages are settlements that no cipher has written, by their damage.
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
