package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A traceCollector keeps the spans that it receives.
type traceCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*traces.Span
	text  strings.Builder // everything that was received
}

func newTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var all collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &all)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			http.Error(w, "not traces", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range all.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
		c.text.WriteString(all.String())
	}))
	t.Cleanup(c.Close)
	return c
}

// env is the environment of a program that sends its spans to the collector.
func (c *traceCollector) env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=50"}
}

// named returns the spans with a name, once there are n of them.
func (c *traceCollector) named(t *testing.T, name string, n int) (found []*traces.Span) {
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
func (c *traceCollector) checkReplay(t *testing.T, secrets ...string) *traces.Span {
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
	c := newTraceCollector(t)
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
	c := newTraceCollector(t)
	s := startWith(t, c.env(), "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--allow-anonymous")
	for range 2 {
		got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "secret-key", "Traceparent", "00-"+clientTrace+"-00f067aa0ba902b7-01")
		if got.status != http.StatusCreated {
			t.Fatalf("%+v", got)
		}
	}
	c.checkReplay(t, "secret-key")
}
