package metrics

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
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A downStore can't be reached.
type downStore struct{ onlyonce.Store }

func (downStore) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, fmt.Errorf("%w: no route", onlyonce.ErrUnavailable)
}

func TestMetrics_ARequestThatRanWithoutProtectionIsCountedAndLogged(t *testing.T) {
	m := New()
	a := m.API("mail")
	var log strings.Builder
	warn := onlyonce.SlogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), nil)
	g := onlyonce.New(downStore{}, onlyonce.Config{Observer: Tee(a.Observe, warn)})
	h := httponce.Wrap(g, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), httponce.Config{
		Tenant: httponce.SingleTenant, RunUnprotected: true,
	})
	r := httptest.NewRequest("POST", "/mail", nil)
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	text := cmdtest.Scrape(m.Handler())
	for _, want := range []string{`onlyonce_idempotency_requests_total{api="mail",operation="POST /mail",outcome="unprotected"} 1`, `onlyonce_idempotency_hit_rate{api="mail"} 0`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
	if strings.Count(log.String(), "level=WARN msg=\"idempotency unprotected\" event=idempotency_unprotected") != 1 {
		t.Errorf("the log is %s", log.String())
	}
}

func TestMetrics_CountCleanupCycles(t *testing.T) {
	m := New()
	m.API("mail")
	observe := m.cleanup("main")
	for _, e := range []onlyonce.Event{
		{Purged: 5},
		{Purged: 3, Err: errors.New("the store is down")},
		{Purged: 2},
	} {
		e.Outcome = onlyonce.OutcomePurged
		observe(context.Background(), e)
	}
	text := cmdtest.Scrape(m.Handler())
	for _, want := range []string{
		`onlyonce_cleanup_last_records{store="main"} 2`, `onlyonce_cleanup_records_total{store="main"} 10`,
		`onlyonce_cleanup_errors_total{store="main"} 1`, `onlyonce_idempotency_hit_rate{api="mail"} NaN`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
}

func TestMetrics_HaveNoTenantsAndABoundedNumberOfOperations(t *testing.T) {
	m := New()
	a := m.API("mail")
	for i := range 1000 {
		id := onlyonce.ID{Tenant: fmt.Sprint("tenant-", i), Operation: fmt.Sprint("op-", i), Key: fmt.Sprint("key-", i)}
		a.Observe(context.Background(), onlyonce.Event{Outcome: onlyonce.OutcomeExecuted, Record: onlyonce.Record{ID: id, State: onlyonce.StateCompleted}})
	}
	text := cmdtest.Scrape(m.Handler())
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

func TestMetrics_CountTheEventsThatWereGivenUp(t *testing.T) {
	for want, count := range map[string]func(context.Context) (int64, error){
		"onlyonce_inbox_poisoned 3":   func(context.Context) (int64, error) { return 3, nil },
		"onlyonce_inbox_poisoned NaN": func(context.Context) (int64, error) { return 0, errors.New("the database is away") },
	} {
		m := New()
		m.Registry.MustRegister(Poisoned(count))
		if text := cmdtest.Scrape(m.Handler()); !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("not there: %s", want)
		}
	}
}
