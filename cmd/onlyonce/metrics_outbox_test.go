package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

func TestMetrics_SayWhatWaitsInTheOutboxAndWhatIsParked(t *testing.T) {
	u, err := storeurl.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := u.OpenMigrated(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	seedOutbox(t.Context(), store)
	m := metrics.New()
	m.Store("main").Outbox(store.Outbox())
	text := cmdtest.Scrape(m.Handler())
	for _, want := range []string{"onlyonce_outbox_waiting 1", "onlyonce_outbox_parked 2"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
	if !strings.Contains(text, "\nonlyonce_outbox_oldest_seconds ") || strings.Contains(text, "acme") {
		t.Errorf("the age is missing, or a tenant is there:\n%s", text)
	}
}

func TestMetrics_CountWhatTheRelayPublished(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	if got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k"); got.status != 201 {
		t.Fatalf("%+v", got)
	}
	cmdtest.Until(t, "the order has its shipment", func() bool { return strings.Contains(s.get("/orders").body, `"shipment":{"id":"shp_`) })
	cmdtest.Until(t, "its event is counted", func() bool {
		text := s.get("/metrics").body
		return strings.Contains(text, "\nonlyonce_outbox_messages_total{outcome=\"published\"} 1\n") &&
			strings.Contains(text, "\nonlyonce_outbox_waiting 0\n") && strings.Contains(text, "\nonlyonce_outbox_parked 0\n") &&
			strings.Contains(text, "\nonlyonce_inbox_poisoned 0\n")
	})
	if strings.Contains(s.get("/metrics").body, "shipping") {
		t.Error("the consumer's messages are counted among the requests with a key")
	}
}
