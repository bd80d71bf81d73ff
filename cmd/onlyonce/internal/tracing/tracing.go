// Package tracing sends the spans of the commands with a server to an OpenTelemetry
// collector.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/otelonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A Tracing makes spans and sends them. Nil makes none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	events   *otelonce.Telemetry
}

// Start returns nil unless OpenTelemetry's standard environment variables name a collector.
// The exporter, the sampler and the resource read the other variables by themselves.
func Start(ctx context.Context, log *slog.Logger) (*Tracing, error) {
	if !wanted() {
		return nil, nil
	}
	client, err := newClient()
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("start the exporter of traces: %w", err)
	}
	attributes, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "onlyonce"), attribute.String("service.version", version.Program()),
	), resource.WithFromEnv()) // which wins
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("tracing failed", "error", err) }))
	return newTracing(sdktrace.NewTracerProvider(sdktrace.WithResource(attributes), sdktrace.WithBatcher(exporter)))
}

func newTracing(provider *sdktrace.TracerProvider) (*Tracing, error) {
	events, err := otelonce.New(otelonce.Config{TracerProvider: provider, MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		return nil, err
	}
	return &Tracing{provider, provider.Tracer("github.com/onlyonce-go/onlyonce/cmd/onlyonce"), events}, nil
}

// wanted reports whether the environment asks for traces.
func wanted() bool {
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false
	default:
		return exporter != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	}
}

func newClient() (otlptrace.Client, error) {
	if exporter := cmp.Or(os.Getenv("OTEL_TRACES_EXPORTER"), "otlp"); exporter != "otlp" {
		return nil, cli.Usagef("OTEL_TRACES_EXPORTER is %q: set it to otlp or none", exporter)
	}
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); protocol {
	case "http/protobuf":
		return otlptracehttp.NewClient(), nil
	case "grpc":
		return otlptracegrpc.NewClient(), nil
	default:
		return nil, cli.Usagef("OTEL_EXPORTER_OTLP_PROTOCOL is %q: set it to http/protobuf or grpc", protocol)
	}
}

// closeWithin bounds how long the last spans may take to be sent.
const closeWithin = 5 * time.Second

// Close sends the spans that are left.
func (t *Tracing) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last traces: %w", err)
	}
	return nil
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
