package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestInFlight_ARequestIsCountedUntilItHasItsOutcome(t *testing.T) {
	failing := errors.New("no money")
	for what, run := range map[string]func(g *onlyonce.Guard, fn func(context.Context) (int, error)) error{
		"a command that completes": func(g *onlyonce.Guard, fn func(context.Context) (int, error)) error {
			_, err := onlyonce.Do(t.Context(), g, request("k"), fn)
			return err
		},
		"a command that fails": func(g *onlyonce.Guard, fn func(context.Context) (int, error)) error {
			_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
				_, err := fn(ctx)
				return 0, errors.Join(err, failing)
			})
			if !errors.Is(err, failing) {
				return errors.Join(errors.New("it did not fail"), err)
			}
			return nil
		},
		"a command that panics": func(g *onlyonce.Guard, fn func(context.Context) (int, error)) (err error) {
			defer func() { recover() }()
			_, err = onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
				if _, err := fn(ctx); err != nil {
					return 0, err
				}
				panic("oops")
			})
			return errors.Join(errors.New("it did not panic"), err)
		},
		"an attempt that is released": func(g *onlyonce.Guard, fn func(context.Context) (int, error)) error {
			a, err := g.Begin(t.Context(), request("k"))
			if err != nil {
				return err
			}
			_, err = fn(t.Context())
			return errors.Join(err, a.Settle(t.Context(), onlyonce.Settlement{}))
		},
	} {
		g := onlyonce.New(newStore(), onlyonce.Config{})
		if n := g.InFlight(); n != 0 {
			t.Errorf("%s: %d before it began", what, n)
		}
		err := run(g, func(context.Context) (int, error) {
			if n := g.InFlight(); n != 1 {
				t.Errorf("%s: %d while it runs", what, n)
			}
			if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrInFlight) {
				t.Errorf("%s: a duplicate got %v", what, err)
			}
			if n := g.InFlight(); n != 1 {
				t.Errorf("%s: %d after a rejected duplicate", what, n)
			}
			return 1, nil
		})
		if err != nil || g.InFlight() != 0 {
			t.Errorf("%s: error %v, and then %d in flight", what, err, g.InFlight())
		}
	}
}

func TestInFlight_ATransactionAndAReconciledCommandAreCountedOnce(t *testing.T) {
	l := newLedger()
	var g *onlyonce.TxGuard[entry]
	reconciled := onlyonce.Settlement{}
	g = onlyonce.NewTx(l, onlyonce.Config{Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
		if n := g.InFlight(); n != 1 {
			t.Errorf("%d while Reconcile runs", n)
		}
		return reconciled, nil
	}})
	run := func(key string) {
		_, err := onlyonce.DoTx(t.Context(), g, request(key), func(context.Context, entry) (int, error) {
			if n := g.InFlight(); n != 1 {
				t.Errorf("%s: %d while it runs", key, n)
			}
			return 1, nil
		})
		if err != nil || g.InFlight() != 0 {
			t.Errorf("%s: error %v, and then %d in flight", key, err, g.InFlight())
		}
	}
	run("new")
	run("new")
	for key, s := range map[string]onlyonce.Settlement{
		"runs again": {}, "found": {State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("1")}},
	} {
		crash(t, l, request(key), time.Nanosecond)
		reconciled = s
		run(key)
	}
}
