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
	a := m.API("main", "mail")
	var log strings.Builder
	warn := onlyonce.SlogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), nil)
	g := onlyonce.New(downStore{}, onlyonce.Config{Observer: onlyonce.Tee(a.Observe, warn)})
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
