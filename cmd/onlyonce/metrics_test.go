package main

import (
	"strings"
	"testing"
)

func TestMetrics_CountACreateItsRepeatAndAConflict(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	for _, title := range []string{"Lamp", "Lamp", "Other lamp"} {
		if got := s.post("secret-key", title); got.err != nil {
			t.Fatal(got.err)
		}
	}
	text := s.counts(
		`onlyonce_idempotency_requests_total{api="items",operation="POST /api/v1/items",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="items",operation="POST /api/v1/items",outcome="replayed"} 1`,
		`onlyonce_idempotency_requests_total{api="items",operation="POST /api/v1/items",outcome="mismatch"} 1`,
		`onlyonce_idempotency_conflicts_total{api="items"} 1`,
		`onlyonce_idempotency_hit_rate{api="items"} 50`,
		`onlyonce_idempotency_duration_seconds_count{api="items",outcome="executed"} 1`,
		`onlyonce_idempotency_duration_seconds_count{api="items",outcome="replayed"} 1`,
		`onlyonce_idempotency_active_requests{api="items"} 0`,
	)
	if strings.Contains(text, "secret-key") {
		t.Error("a key is in the metrics")
	}
}

func TestMetrics_AreKeptApartByAPI(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	s.post("k", "Lamp")
	s.post("k", "Lamp")
	for _, body := range []string{`{"ttl":60}`, `{"ttl":60}`, `{"ttl":60}`, `{"ttl":60}`, `{"ttl":61}`} {
		s.do("POST", "/v1/sandboxes", body, "Idempotency-Key", "k")
	}
	s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k")
	s.counts(
		`onlyonce_idempotency_hit_rate{api="items"} 50`,
		`onlyonce_idempotency_hit_rate{api="sandboxes"} 75`,
		`onlyonce_idempotency_hit_rate{api="orders"} 0`,
		`onlyonce_idempotency_conflicts_total{api="items"} 0`,
		`onlyonce_idempotency_conflicts_total{api="sandboxes"} 1`,
		`onlyonce_idempotency_conflicts_total{api="orders"} 0`,
		`onlyonce_idempotency_duration_seconds_count{api="items",outcome="replayed"} 1`,
		`onlyonce_idempotency_duration_seconds_count{api="sandboxes",outcome="replayed"} 3`,
		`onlyonce_idempotency_duration_seconds_count{api="orders",outcome="executed"} 1`,
		`onlyonce_idempotency_requests_total{api="orders",operation="CreateOrder",outcome="executed"} 1`,
		`onlyonce_idempotency_active_requests{api="orders"} 0`,
	)
}

func TestMetrics_CountAReleasedRequestAsNeitherAHitNorAMiss(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	for _, title := range []string{"", "", "Lamp", "Lamp"} { // a 400 is not stored
		if got := s.post("k", title); got.err != nil {
			t.Fatal(got.err)
		}
	}
	s.counts(
		`onlyonce_idempotency_requests_total{api="items",operation="POST /api/v1/items",outcome="released"} 2`,
		`onlyonce_idempotency_requests_total{api="items",operation="POST /api/v1/items",outcome="executed"} 1`,
		`onlyonce_idempotency_hit_rate{api="items"} 50`,
		`onlyonce_idempotency_duration_seconds_count{api="items",outcome="executed"} 1`,
	)
}
