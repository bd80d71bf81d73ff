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
		`idempotency_requests_total{operation="POST /api/v1/items",outcome="executed"} 1`,
		`idempotency_requests_total{operation="POST /api/v1/items",outcome="replayed"} 1`,
		`idempotency_requests_total{operation="POST /api/v1/items",outcome="mismatch"} 1`,
		`idempotency_conflicts_total 1`,
		`idempotency_hit_rate 50`,
		`idempotency_duration_seconds_count{outcome="executed"} 1`,
		`idempotency_duration_seconds_count{outcome="replayed"} 1`,
		`idempotency_in_flight 0`,
	)
	if strings.Contains(text, "secret-key") {
		t.Error("a key is in the metrics")
	}
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
		`idempotency_requests_total{operation="POST /api/v1/items",outcome="released"} 2`,
		`idempotency_requests_total{operation="POST /api/v1/items",outcome="executed"} 1`,
		`idempotency_hit_rate 50`,
		`idempotency_duration_seconds_count{outcome="executed"} 1`,
	)
}

// A downStore can't be reached.
type downStore struct{ onlyonce.Store }

func (downStore) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, fmt.Errorf("%w: no route", onlyonce.ErrUnavailable)
}

func TestARequestThatRanWithoutProtectionIsCountedAndLogged(t *testing.T) {
	m := newMetrics()
	var log strings.Builder
	warn := onlyonce.SlogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	g := onlyonce.New(downStore{}, onlyonce.Config{Observer: func(ctx context.Context, e onlyonce.Event) {
		m.observe(ctx, e)
		warn(ctx, e)
	}})
	h := httponce.Wrap(g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), httponce.Config{
		Tenant: httponce.SingleTenant, RunUnprotected: true,
	})
	r := httptest.NewRequest("POST", "/mail", nil)
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	text := scrape(m)
	for _, want := range []string{`idempotency_requests_total{operation="POST /mail",outcome="unprotected"} 1`, "idempotency_hit_rate 0"} {
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
	for _, e := range []onlyonce.Event{
		{Purged: 5},
		{Purged: 3, Err: errors.New("the store is down")},
		{Purged: 2},
	} {
		e.Outcome = onlyonce.OutcomePurged
		m.observe(context.Background(), e)
	}
	text := scrape(m)
	for _, want := range []string{"cleanup_count 2", "cleanup_records_total 10", "cleanup_errors_total 1", "idempotency_hit_rate NaN"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
}

func TestMetricsHaveNoTenantsAndABoundedNumberOfOperations(t *testing.T) {
	m := newMetrics()
	for i := range 1000 {
		id := onlyonce.ID{Tenant: fmt.Sprint("tenant-", i), Operation: fmt.Sprint("op-", i), Key: fmt.Sprint("key-", i)}
		m.observe(context.Background(), onlyonce.Event{Outcome: onlyonce.OutcomeExecuted, Record: onlyonce.Record{ID: id, State: onlyonce.StateCompleted}})
	}
	text := scrape(m)
	if n := strings.Count(text, "\nidempotency_requests_total{"); n != maxOperations+1 {
		t.Errorf("%d series, want %d", n, maxOperations+1)
	}
	if !strings.Contains(text, fmt.Sprintf(`{operation="other",outcome="executed"} %d`, 1000-maxOperations)) {
		t.Error("what is beyond the bound is not counted together")
	}
	for _, secret := range []string{"tenant-", "key-"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s… is in the metrics", secret)
		}
	}
}
