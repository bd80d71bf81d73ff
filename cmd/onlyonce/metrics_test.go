package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestMetricsCountACreateItsRepeatAndAConflict(t *testing.T) {
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
		`onlyonce_idempotency_in_flight{api="items"} 0`,
	)
	if strings.Contains(text, "secret-key") {
		t.Error("a key is in the metrics")
	}
}

func TestMetricsAreKeptApartByAPI(t *testing.T) {
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
		`onlyonce_idempotency_in_flight{api="orders"} 0`,
	)
}

func TestMetricsCountAReleasedRequestAsNeitherAHitNorAMiss(t *testing.T) {
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

// A downStore can't be reached.
type downStore struct{ onlyonce.Store }

func (downStore) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, fmt.Errorf("%w: no route", onlyonce.ErrUnavailable)
}

func TestARequestThatRanWithoutProtectionIsCountedAndLogged(t *testing.T) {
	m := newMetrics()
	a := m.api("mail")
	var log strings.Builder
	warn := onlyonce.SlogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), nil)
	g := onlyonce.New(downStore{}, onlyonce.Config{Observer: tell(a.observe, warn)})
	h := httponce.Wrap(g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), httponce.Config{
		Tenant: httponce.SingleTenant, RunUnprotected: true,
	})
	r := httptest.NewRequest("POST", "/mail", nil)
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	text := scrape(m)
	for _, want := range []string{`onlyonce_idempotency_requests_total{api="mail",operation="POST /mail",outcome="unprotected"} 1`, `onlyonce_idempotency_hit_rate{api="mail"} 0`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
	if strings.Count(log.String(), "level=WARN msg=\"idempotency unprotected\" event=idempotency_unprotected") != 1 {
		t.Errorf("the log is %s", log.String())
	}
}

func scrape(m *metrics) string {
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestMetricsCountCleanupCycles(t *testing.T) {
	m := newMetrics()
	m.api("mail")
	observe := m.cleanup("main")
	for _, e := range []onlyonce.Event{
		{Purged: 5},
		{Purged: 3, Err: errors.New("the store is down")},
		{Purged: 2},
	} {
		e.Outcome = onlyonce.OutcomePurged
		observe(context.Background(), e)
	}
	text := scrape(m)
	for _, want := range []string{
		`onlyonce_cleanup_last_records{store="main"} 2`, `onlyonce_cleanup_records_total{store="main"} 10`,
		`onlyonce_cleanup_errors_total{store="main"} 1`, `onlyonce_idempotency_hit_rate{api="mail"} NaN`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
}

func TestMetricsHaveNoTenantsAndABoundedNumberOfOperations(t *testing.T) {
	m := newMetrics()
	a := m.api("mail")
	for i := range 1000 {
		id := onlyonce.ID{Tenant: fmt.Sprint("tenant-", i), Operation: fmt.Sprint("op-", i), Key: fmt.Sprint("key-", i)}
		a.observe(context.Background(), onlyonce.Event{Outcome: onlyonce.OutcomeExecuted, Record: onlyonce.Record{ID: id, State: onlyonce.StateCompleted}})
	}
	text := scrape(m)
	if n := strings.Count(text, "\nonlyonce_idempotency_requests_total{"); n != maxOperations+1 {
		t.Errorf("%d series, want %d", n, maxOperations+1)
	}
	if !strings.Contains(text, fmt.Sprintf(`{api="mail",operation="other",outcome="executed"} %d`, 1000-maxOperations)) {
		t.Error("what is beyond the bound is not counted together")
	}
	for _, secret := range []string{"tenant-", "key-"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s… is in the metrics", secret)
		}
	}
}
