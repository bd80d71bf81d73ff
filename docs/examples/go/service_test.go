package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/conform"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestOrders_KeepTheRulesOfIdempotency(t *testing.T) {
	db, store, err := open(t.Context(), filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	defer store.Close()
	server := httptest.NewServer(handler(store))
	defer server.Close()
	conform.Test(t, conform.Target{
		URL:    server.URL + "/orders",
		Header: http.Header{"Authorization": {"Bearer alices-token"}},
		Other:  http.Header{"Authorization": {"Bearer bobs-token"}},
		Body:   []byte(`{"item": "lamp {{fresh}}"}`),
	}, conform.Config{})
}

var errTimeout = errors.New("the payment provider did not answer in time")

func TestCharge_AnUnknownOutcomeWaitsForAPerson(t *testing.T) {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	order := onlyonce.Request{
		ID:          onlyonce.ID{Tenant: "alice", Operation: "charge", Key: "order-1"},
		Fingerprint: onlyonce.Fingerprint([]byte("19.90")),
	}
	charges := 0
	charge := func(context.Context) (string, error) {
		charges++
		return "", onlyonce.Unknown(errTimeout)
	}
	if _, err := onlyonce.Do(t.Context(), guard, order, charge); !errors.Is(err, errTimeout) {
		t.Errorf("the first caller got %v", err)
	}
	if _, err := onlyonce.Do(t.Context(), guard, order, charge); !errors.Is(err, onlyonce.ErrUnknown) {
		t.Errorf("the retry got %v", err)
	}
	if charges != 1 {
		t.Errorf("the provider was asked for %d charges", charges)
	}
}

func TestCharge_AProcessThatDiesHoldsItsCommandForOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in here, time passes at once
		guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Lease: 30 * time.Second})
		order := onlyonce.Request{
			ID:          onlyonce.ID{Tenant: "alice", Operation: "charge", Key: "order-1"},
			Fingerprint: onlyonce.Fingerprint([]byte("19.90")),
		}
		if _, err := guard.Begin(t.Context(), order); err != nil { // and never settle it, as if the process had died
			t.Fatal(err)
		}
		charge := func(context.Context) (string, error) { return "receipt", nil }
		if _, err := onlyonce.Do(t.Context(), guard, order, charge); !errors.Is(err, onlyonce.ErrInFlight) {
			t.Errorf("while the lease is alive: %v", err)
		}
		time.Sleep(31 * time.Second)
		if answer, err := onlyonce.Do(t.Context(), guard, order, charge); err != nil || answer.Value != "receipt" {
			t.Errorf("after the lease: %q, %v", answer.Value, err)
		}
	})
}
