package onlyonce_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestAttempt_TheMemoryOfAFingerprintStaysItsCallers(t *testing.T) {
	var seen onlyonce.Event
	g := onlyonce.New(newStore(), onlyonce.Config{Observer: func(_ context.Context, e onlyonce.Event) { seen = e }})
	print := onlyonce.Fingerprint([]byte("first"))
	req := onlyonce.Request{ID: onlyonce.ID{Key: "k"}, Fingerprint: print}
	a, err := g.Begin(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	clear(print)
	if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateCompleted}); err != nil {
		t.Fatal(err)
	}
	if string(seen.Fingerprint) != string(onlyonce.Fingerprint([]byte("first"))) {
		t.Fatal("the event's fingerprint changed with the caller's memory")
	}
}

func TestAttempt_EveryClaimHasAnOwnerOfItsOwn(t *testing.T) {
	const claims = 1000
	g := onlyonce.New(newStore(), onlyonce.Config{})
	owners := make(chan string, claims)
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() {
			a, err := g.Begin(t.Context(), onlyonce.Request{ID: onlyonce.ID{Key: strconv.Itoa(i)}, SkipFingerprint: true})
			if err != nil {
				t.Error(err)
				return
			}
			owners <- a.Record().Owner
		})
	}
	all.Wait()
	close(owners)
	seen := map[string]bool{}
	for o := range owners {
		if len(o) != 16 || seen[o] {
			t.Fatalf("owner %x, among %d others", o, len(seen))
		}
		seen[o] = true
	}
}
