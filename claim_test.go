package onlyonce_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestAClaimNeverTakesWhatItHadBefore(t *testing.T) {
	c := onlyonce.Claim{Owner: "me", RetryFailed: true, TakeUnknown: true}
	for _, state := range []onlyonce.State{onlyonce.StateProcessing, onlyonce.StateFailed, onlyonce.StateUnknown} {
		if c.Takes(onlyonce.Record{Owner: "me", State: state}) {
			t.Errorf("took its own %s record", state)
		}
		if !c.Takes(onlyonce.Record{Owner: "another", State: state}) {
			t.Errorf("did not take the %s record of another", state)
		}
	}
}

func TestAFullStoreIsAskedOnce(t *testing.T) {
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
