package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestUnresolved_WhatIsUnresolvedIsAGauge(t *testing.T) {
	store := memstore.New(memstore.Config{})
	m := New()
	m.Unresolved("main", store)
	const metric = "onlyonce_idempotency_unresolved"
	want := func(n string) {
		t.Helper()
		if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(
			"# HELP "+metric+" Records with an unknown outcome: those recorded as unknown, those whose lease has lapsed, and those in a state that no store writes.\n# TYPE "+metric+" gauge\n"+metric+`{store="main"} `+n+"\n"), metric); err != nil {
			t.Error(err)
		}
	}
	want("0")
	r, err := store.Claim(t.Context(), onlyonce.Claim{ID: onlyonce.ID{Key: "k"}, Owner: "me", SkipFingerprint: true, Lease: time.Hour})
	if err == nil {
		err = store.Settle(t.Context(), onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{State: onlyonce.StateUnknown})
	}
	if err != nil {
		t.Fatal(err)
	}
	want("1")
}
