package onlyonce_test

import (
	"context"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

func TestTheMemoryOfAFingerprintStaysItsCallers(t *testing.T) {
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
