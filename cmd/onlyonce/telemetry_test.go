package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	metricsCollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traceCollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A telemetryCollector keeps the spans and the metrics that it receives.
type telemetryCollector struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*traces.Span
	metrics map[string]*metrics.Metric // the last of each name
	text    strings.Builder            // everything that was received
}

func newTelemetryCollector(t *testing.T) *telemetryCollector {
	c := &telemetryCollector{metrics: make(map[string]*metrics.Metric)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var all traceCollector.ExportTraceServiceRequest
		c.receive(w, r, &all, func() {
			for _, resource := range all.ResourceSpans {
				for _, scope := range resource.ScopeSpans {
					c.spans = append(c.spans, scope.Spans...)
				}
			}
		})
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var all metricsCollector.ExportMetricsServiceRequest
		c.receive(w, r, &all, func() {
			for _, resource := range all.ResourceMetrics {
				for _, scope := range resource.ScopeMetrics {
					for _, m := range scope.Metrics {
						c.metrics[m.Name] = m
					}
				}
			}
		})
	})
	c.Server = httptest.NewServer(mux)
	t.Cleanup(c.Close)
	return c
}

// receive decodes a request and keeps it.
func (c *telemetryCollector) receive(w http.ResponseWriter, r *http.Request, into proto.Message, keep func()) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	keep()
	fmt.Fprint(&c.text, into)
}

// env is the environment of a program that sends its spans and metrics to the collector.
func (c *telemetryCollector) env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}
}

// value returns the sum of a metric's points that have the attributes; ok is false if there is
// none yet.
func (c *telemetryCollector) value(name string, attributes ...string) (sum float64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.metrics[name]
	for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
		of := make(map[string]string)
		for _, a := range p.Attributes {
			of[a.Key] = a.Value.GetStringValue()
		}
		has := true
		for i := 0; i < len(attributes); i += 2 {
			has = has && of[attributes[i]] == attributes[i+1]
		}
		if has {
			sum, ok = sum+p.GetAsDouble(), true
		}
	}
	return sum, ok
}

// named returns the spans with a name, once there are n of them.
func (c *telemetryCollector) named(t *testing.T, name string, n int) (found []*traces.Span) {
	t.Helper()
	cmdtest.Until(t, "there are spans "+name, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = nil
		for _, s := range c.spans {
			if s.Name == name {
				found = append(found, s)
			}
		}
		return len(found) >= n
	})
	return found
}

// checkReplay checks that the second of two requests of one trace was a replay that is linked
// to the first, and that neither a path, a key nor a tenant is in a span. It returns the
// first request's span.
func (c *telemetryCollector) checkReplay(t *testing.T, secrets ...string) *traces.Span {
	t.Helper()
	executed, replayed := c.named(t, "idempotency executed", 1)[0], c.named(t, "idempotency replayed", 1)[0]
	var first, second *traces.Span
	for _, s := range c.named(t, "POST", 2) {
		switch string(s.SpanId) {
		case string(executed.ParentSpanId):
			first = s
		case string(replayed.ParentSpanId):
			second = s
		}
	}
	if first == nil || second == nil {
		t.Fatalf("the decisions are below no request: %v, %v", executed, replayed)
	}
	if hex.EncodeToString(first.TraceId) != clientTrace || hex.EncodeToString(first.ParentSpanId) != "00f067aa0ba902b7" {
		t.Errorf("the request is not in the client's trace: %v", first)
	}
	if len(replayed.Links) != 1 || string(replayed.Links[0].SpanId) != string(first.SpanId) || string(replayed.Links[0].TraceId) != string(first.TraceId) {
		t.Errorf("the replay's links are %v, want one to %x", replayed.Links, first.SpanId)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, secret := range secrets {
		if strings.Contains(c.text.String(), secret) {
			t.Errorf("%s is in a span", secret)
		}
	}
	return first
}

const clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"

func TestTracing_TheProxySendsItsSpansAndPassesTheTraceOn(t *testing.T) {
	t.Parallel()
	c := newTelemetryCollector(t)
	passed := make(chan string, 10)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed <- r.Header.Get("Traceparent")
		w.WriteHeader(http.StatusCreated)
	}))
	defer up.Close()
	s := startWith(t, c.env(), "proxy", "--listen", "127.0.0.1:0", "--upstream", up.URL, "--store", "memory://", "--tenant-header", "X-Tenant-ID")
	for range 2 {
		got := s.do("POST", "/secret-path", "a", "Idempotency-Key", "secret-key", "X-Tenant-ID", "secret-tenant", "Traceparent", "00-"+clientTrace+"-00f067aa0ba902b7-01")
		if got.status != http.StatusCreated {
			t.Fatalf("%+v", got)
		}
	}
	first := c.checkReplay(t, "secret-path", "secret-key", "secret-tenant")
	if got := <-passed; got != "00-"+clientTrace+"-"+hex.EncodeToString(first.SpanId)+"-01" {
		t.Errorf("the upstream got the traceparent %q", got)
	}
}

func TestTracing_ServeSendsItsSpans(t *testing.T) {
	t.Parallel()
	c := newTelemetryCollector(t)
	s := startWith(t, c.env(), "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--allow-anonymous")
	for range 2 {
		got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "secret-key", "Traceparent", "00-"+clientTrace+"-00f067aa0ba902b7-01")
		if got.status != http.StatusCreated {
			t.Fatalf("%+v", got)
		}
	}
	c.checkReplay(t, "secret-key")
}

func TestTelemetry_TheProxySendsTheMetricsOfItsMetricsPage(t *testing.T) {
	t.Parallel()
	c := newTelemetryCollector(t)
	up := newUpstreamServer(t)
	s := startWith(t, append(c.env(), "OTEL_METRIC_EXPORT_INTERVAL=50"), "proxy", "--listen", "127.0.0.1:0", "--upstream", up.URL, "--store", "memory://", "--tenant-header", "X-Tenant-ID")
	for range 3 {
		s.do("POST", "/secret-path", "a", "Idempotency-Key", "secret-key", "X-Tenant-ID", "secret-tenant")
	}
	for _, want := range []struct {
		name  string
		value float64
		of    []string
	}{
		{"onlyonce_idempotency_requests_total", 1, []string{"api", "proxy", "outcome", "executed"}},
		{"onlyonce_idempotency_requests_total", 2, []string{"api", "proxy", "outcome", "replayed"}},
		{"onlyonce_idempotency_unresolved", 0, []string{"store", "main"}},
	} {
		cmdtest.Until(t, want.name+" is sent", func() bool {
			got, ok := c.value(want.name, want.of...)
			return ok && got == want.value
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, secret := range []string{"secret-path", "secret-key", "secret-tenant"} {
		if strings.Contains(c.text.String(), secret) {
			t.Errorf("%s is in the telemetry", secret)
		}
	}
}

func TestTelemetry_ServeSendsItsLastMetricsWhenItStops(t *testing.T) {
	t.Parallel()
	c := newTelemetryCollector(t)
	s := startWith(t, c.env(), "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--allow-anonymous")
	s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k")
	s.signal(os.Interrupt)
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("%v; log:\n%s", state, s.log.String())
	}
	if got, ok := c.value("onlyonce_idempotency_requests_total", "api", "orders", "outcome", "executed"); !ok || got != 1 {
		t.Errorf("%v executed, %v", got, ok)
	}
}

func TestTelemetry_ACollectorThatIsAwayIsOnlyLogged(t *testing.T) {
	t.Parallel()
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + cmdtest.ClosedAddress(), "OTEL_METRIC_EXPORT_TIMEOUT=1000"}
	s := startWith(t, env, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--allow-anonymous")
	if got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k"); got.status != http.StatusCreated {
		t.Errorf("%+v", got)
	}
	s.signal(os.Interrupt)
	if state := s.wait(); state.ExitCode() != 0 {
		t.Errorf("%v; log:\n%s", state, s.log.String())
	}
	if log := s.log.String(); !strings.Contains(log, `"msg":"sending the last telemetry failed","signal":"metrics"`) {
		t.Errorf("log:\n%s", log)
	}
}
