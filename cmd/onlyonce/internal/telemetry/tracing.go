package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/otelonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A Tracing makes spans and sends them. Nil makes none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	events   *otelonce.Telemetry
	log      *slog.Logger
}

// StartTracing returns nil unless OpenTelemetry's standard environment variables name a
// collector of traces. The exporter, the sampler and the resource read the other variables
// by themselves.
func StartTracing(ctx context.Context, log *slog.Logger) (*Tracing, error) {
	protocol, attributes, err := prepare(ctx, "TRACES", log)
	if protocol == "" {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, newClient(protocol))
	if err != nil {
		return nil, fmt.Errorf("start the exporter of traces: %w", err)
	}
	return newTracing(sdktrace.NewTracerProvider(sdktrace.WithResource(attributes), sdktrace.WithBatcher(exporter)), log)
}

func newClient(protocol string) otlptrace.Client {
	if protocol == protocolGRPC {
		return otlptracegrpc.NewClient()
	}
	return otlptracehttp.NewClient()
}

func newTracing(provider *sdktrace.TracerProvider, log *slog.Logger) (*Tracing, error) {
	events, err := otelonce.New(otelonce.Config{TracerProvider: provider, MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		return nil, err
	}
	return &Tracing{provider, provider.Tracer("github.com/onlyonce-go/onlyonce/cmd/onlyonce"), events, log}, nil
}

// Close sends the spans that are left.
func (t *Tracing) Close() {
	if t != nil {
		shutdown("traces", t.provider.Shutdown, t.log)
	}
}

// Observe is an onlyonce.Observer that makes a span for each decision.
func (t *Tracing) Observe(ctx context.Context, e onlyonce.Event) {
	if t != nil {
		t.events.Observe(ctx, e)
	}
}

// Traceparent is for onlyonce.Config.Traceparent.
func (t *Tracing) Traceparent() func(context.Context) string {
	if t == nil {
		return nil
	}
	return otelonce.Traceparent
}

// methods are those that a span names. Clients can send any other.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

// Handler makes a span for each request, below that of the caller's traceparent. The request
// that h gets has the span's traceparent. Paths, which may contain secrets, are not in the
// span.
func (t *Tracing) Handler(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	var w3c propagation.TraceContext
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := "_OTHER"
		name := "HTTP"
		if slices.Contains(methods, r.Method) {
			method, name = r.Method, r.Method
		}
		ctx, span := t.tracer.Start(w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), name,
			trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("http.request.method", method)))
		defer span.End()
		r = r.WithContext(ctx)
		r.Header = r.Header.Clone()
		w3c.Inject(ctx, propagation.HeaderCarrier(r.Header))
		c := server.StatusWriter{ResponseWriter: w}
		h.ServeHTTP(&c, r)
		span.SetAttributes(attribute.Int("http.response.status_code", c.Status))
		if c.Status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}
