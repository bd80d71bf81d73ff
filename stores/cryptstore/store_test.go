package cryptstore

import (
	"context"
	"errors"
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
