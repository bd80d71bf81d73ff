package onlyonce_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A txBound is a store that says that it is in a transaction of its caller's, and counts its
// calls.
type txBound struct {
	*faultyStore
	calls atomic.Int64
}

func (*txBound) InCallersTx() bool { return true }

func (s *txBound) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	s.calls.Add(1)
	return s.faultyStore.Claim(ctx, c)
}

func (s *txBound) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	s.calls.Add(1)
	return s.faultyStore.Renew(ctx, h, lease, steps)
}

func (s *txBound) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	s.calls.Add(1)
	return s.faultyStore.Settle(ctx, h, st)
}

func (s *txBound) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	s.calls.Add(1)
	return s.faultyStore.Lookup(ctx, id)
}

// A transaction that has failed fails every later call, and its connection is used by one goroutine.
func TestCallersTx_AGuardRepeatsNothingAndDoesNothingInTheBackground(t *testing.T) {
	for name, c := range map[string]struct {
		act   func(t *testing.T, g *onlyonce.Guard, s *txBound) error
		calls int64
		want  error // nil: none
	}{
		"a claim that fails": {func(t *testing.T, g *onlyonce.Guard, s *txBound) error {
			s.set(func() { s.claim = down })
			_, err := g.Begin(t.Context(), request("k"))
			return err
		}, 1, errDown},
		"a settlement that fails": {func(t *testing.T, g *onlyonce.Guard, s *txBound) error {
			s.set(func() { s.settle = down })
			a, err := g.Begin(t.Context(), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			return a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted})
		}, 2, errDown},
		"a step that fails": {func(t *testing.T, g *onlyonce.Guard, s *txBound) error {
			s.set(func() { s.renew = down })
			_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
				return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
			})
			return err
		}, 3, errDown},
		"a function that takes long": {func(t *testing.T, g *onlyonce.Guard, _ *txBound) error {
			began := time.Now()
			_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
				time.Sleep(time.Hour)
				return 1, ctx.Err()
			})
			if took := time.Since(began); took != time.Hour {
				t.Errorf("it took %v", took)
			}
			return err
		}, 2, nil},
		"a repeat, which is not replayed from memory": {func(t *testing.T, g *onlyonce.Guard, _ *txBound) error {
			for range 2 {
				if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 1, nil }); err != nil {
					t.Fatal(err)
				}
			}
			return nil
		}, 3, nil},
		"a command that another attempt runs": {func(t *testing.T, g *onlyonce.Guard, s *txBound) error {
			crash(t, s.Store, request("k"), time.Hour)
			_, err := g.Begin(t.Context(), request("k"))
			return err
		}, 1, onlyonce.ErrInFlight},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &txBound{faultyStore: newStore()}
				g := onlyonce.New(s, onlyonce.Config{Wait: time.Hour, CacheBytes: 1 << 20, Observer: onlyonce.DiscardEvents})
				began := time.Now()
				err := c.act(t, g, s)
				if !errors.Is(err, c.want) || c.want != nil && time.Since(began) != 0 {
					t.Errorf("error %v after %v", err, time.Since(began))
				}
				time.Sleep(time.Minute) // what is done in the background is done by then
				if n := s.calls.Load(); n != c.calls {
					t.Errorf("the store was called %d times, want %d", n, c.calls)
				}
			})
		})
	}
}
