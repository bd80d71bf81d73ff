package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// TestRelease_WhatAnEarlierAttemptLeftIsNotForgotten releases a second attempt at a
// command. The first may have taken effect, so the request and the number of attempts
// must still be known.
func TestRelease_WhatAnEarlierAttemptLeftIsNotForgotten(t *testing.T) {
	lost := errors.New("the connection broke")
	declined := errors.New("card declined")
	for name, c := range map[string]struct {
		before func(t *testing.T, store onlyonce.Store, g *onlyonce.Guard)
		cfg    onlyonce.Config
		state  onlyonce.State
		err    string
	}{
		"its outcome is unknown": {
			func(t *testing.T, _ onlyonce.Store, g *onlyonce.Guard) { run(t, g, onlyonce.Unknown(lost)) },
			onlyonce.Config{},
			onlyonce.StateUnknown, lost.Error(),
		},
		"its process died": {
			func(t *testing.T, store onlyonce.Store, _ *onlyonce.Guard) {
				crash(t, store, request("k"), time.Second)
				time.Sleep(2 * time.Second)
			},
			onlyonce.Config{},
			onlyonce.StateUnknown, "",
		},
		"its outcome is unknown, and a callback looked": {
			func(t *testing.T, _ onlyonce.Store, g *onlyonce.Guard) { run(t, g, onlyonce.Unknown(lost)) },
			onlyonce.Config{Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, nil
			}},
			onlyonce.StateUnknown, lost.Error(),
		},
		"it failed": {
			func(t *testing.T, _ onlyonce.Store, g *onlyonce.Guard) { run(t, g, declined) },
			onlyonce.Config{},
			onlyonce.StateFailed, declined.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, release := range []func(*testing.T, *onlyonce.TxGuard[entry]){releaseAttempt, releaseInTx} {
					l := newLedger()
					g := onlyonce.NewTx(l, c.cfg)
					c.before(t, l, g.Guard)
					release(t, g)
					rec := lookup(t, l, request("k"))
					if rec.State != c.state || rec.Error != c.err || rec.Attempt != 2 || rec.Final {
						t.Errorf("record %+v", rec)
					}
					other := request("k")
					other.Fingerprint = []byte("another request")
					if _, err := g.Begin(t.Context(), other); !errors.Is(err, onlyonce.ErrMismatch) {
						t.Errorf("another request with the key: %v", err)
					}
					a, err := onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil })
					if err != nil || a.Value != 1 || a.Attempt < 3 {
						t.Errorf("response %+v, error %v", a, err)
					}
				}
			})
		})
	}
}

// run runs a command that ends with err.
func run(t *testing.T, g *onlyonce.Guard, err error) {
	t.Helper()
	if _, got := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, err }); got == nil {
		t.Fatal("no error")
	}
}

func releaseAttempt(t *testing.T, g *onlyonce.TxGuard[entry]) {
	t.Helper()
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(t.Context(), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
}

func releaseInTx(t *testing.T, g *onlyonce.TxGuard[entry]) {
	t.Helper()
	if _, err := g.BeginTx(t.Context(), request("k"), func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{}, nil
	}); err != nil {
		t.Fatal(err)
	}
}
