package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestClaim_AClaimNeverTakesWhatItHadBefore(t *testing.T) {
	c := onlyonce.Claim{Owner: "me", SkipFingerprint: true, RetryFailed: true, TakeUnknown: true}
	for _, state := range []onlyonce.State{onlyonce.StateProcessing, onlyonce.StateFailed, onlyonce.StateUnknown} {
		if c.Takes(onlyonce.Record{Owner: "me", State: state}) {
			t.Errorf("took its own %s record", state)
		}
		if !c.Takes(onlyonce.Record{Owner: "another", State: state}) {
			t.Errorf("did not take the %s record of another", state)
		}
	}
}

func TestClaim_AFullStoreIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.Store = memstore.New(memstore.Config{MaxRecords: 1})
		asked := 0
		store.claim = func(do func() error) error { asked++; return do() }
		g := onlyonce.New(store, onlyonce.Config{})
		if _, err := g.Begin(t.Context(), request("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Begin(t.Context(), request("b")); !errors.Is(err, onlyonce.ErrUnavailable) || asked != 2 {
			t.Fatalf("asked %d times for two claims; error %v", asked, err)
		}
	})
}

func TestClaim_ALostAttemptsRecordExpiresUnlessSomeoneHasToLookAtIt(t *testing.T) {
	reconcile := func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil }
	for name, c := range map[string]struct {
		cfg     onlyonce.Config
		expires bool
	}{
		"run again":     {onlyonce.Config{}, true},
		"held":          {onlyonce.Config{HoldUnknown: true}, false},
		"looked at":     {onlyonce.Config{Reconcile: reconcile}, false},
		"run again, 1m": {onlyonce.Config{Keep: time.Minute}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Config{})
				req := request("k")
				if _, err := onlyonce.New(store, c.cfg).Begin(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * 24 * time.Hour) // the process is gone
				n, err := store.Purge(t.Context(), 10)
				if err != nil || (n == 1) != c.expires {
					t.Errorf("purged %d with error %v; it expires: %v", n, err, c.expires)
				}
				if open, _, err := store.Unresolved(t.Context()); err != nil || (open == 1) == c.expires {
					t.Errorf("%d are unresolved, with error %v", open, err)
				}
			})
		})
	}
}
