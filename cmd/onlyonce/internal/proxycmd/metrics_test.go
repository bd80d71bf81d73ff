package proxycmd

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/proxy"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestProxyServer_ClientsThatBreakConnectionsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := proxyServer(&proxyfile.File{}, http.NotFoundHandler(), slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 100 {
			s.ErrorLog.Printf("http2: server connection error from 127.0.0.1:%d: connection error: FRAME_SIZE_ERROR", i)
		}
		if n := strings.Count(out.String(), "\n"); n != 10 {
			t.Errorf("%d of 100 are logged, want 10", n)
		}
	})
}

func TestTrafficMetrics_AClientDoesNotFillTheLogNorHideOtherFailures(t *testing.T) {
	for name, fail := range map[string]func(m *trafficMetrics, routes http.Handler, i int){
		"from many ports": func(m *trafficMetrics, _ http.Handler, i int) {
			m.report(httptest.NewRequest("POST", "/", nil), fmt.Errorf("proxy: readfrom tcp 127.0.0.1:%d: the request's body was truncated", i))
		},
		"from many addresses": func(m *trafficMetrics, _ http.Handler, i int) {
			m.report(httptest.NewRequest("POST", "/", nil), fmt.Errorf("proxy: read tcp [::1]:80->[2001:db8::%c:%c]:80: the request's body was truncated", 'a'+i%6, 'a'+i/6%6))
		},
		"by a Connection header": func(_ *trafficMetrics, routes http.Handler, i int) {
			r := httptest.NewRequest("POST", "/orders", nil)
			r.Header.Set("Connection", fmt.Sprintf("X-Forwarded-%c%c", 'a'+i%26, 'a'+i/26%26))
			routes.ServeHTTP(httptest.NewRecorder(), r)
		},
		"by a header with blanks": func(_ *trafficMetrics, routes http.Handler, i int) {
			r := httptest.NewRequest("POST", "/orders", nil)
			r.ProtoMajor = 2
			r.Header[fmt.Sprintf("X-%c%c", 'A'+i%26, 'a'+i/26%26)] = []string{" blank"}
			routes.ServeHTTP(httptest.NewRecorder(), r)
		},
		"of another route": func(m *trafficMetrics, _ http.Handler, i int) {
			r := httptest.NewRequest("POST", "/orders", nil)
			r.Pattern = "POST /orders"
			m.report(r, errors.New("proxy: dial tcp 10.0.0.2:3000: connection refused"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m := newTrafficMetrics(metrics.New(), slog.New(slog.NewTextHandler(&out, nil)))
				up := &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: "upstream.invalid"}}
				routes := proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{OnError: m.report})
				for i := range 1000 {
					fail(m, routes, i)
				}
				r := httptest.NewRequest("POST", "/invoices", nil)
				r.Pattern = "POST /invoices"
				m.report(r, errors.New("proxy: dial tcp 10.0.0.1:3000: connection refused"))
				if n := strings.Count(out.String(), "\n"); n != 11 || !strings.Contains(out.String(), "10.0.0.1") {
					t.Errorf("%d lines:\n%s", n, out.String())
				}
			})
		})
	}
}

func TestTrafficMetrics_AStoreThatIsAwayDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.NewTextHandler(&log, nil)), nil)
		away := onlyonce.Event{Outcome: onlyonce.OutcomeUnavailable, Record: onlyonce.Record{ID: onlyonce.ID{Operation: "POST /orders"}}}
		for i := range 1000 {
			away.Err = fmt.Errorf("read tcp 127.0.0.1:%d: connection reset", 10_000+i)
			b.observer(t.Context(), away)
		}
		if n := strings.Count(log.String(), "\n"); n == 0 || n > 10 {
			t.Errorf("1000 requests without a store left %d lines:\n%.1000s", n, log.String())
		}
	})
}
