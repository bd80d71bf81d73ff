package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

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
