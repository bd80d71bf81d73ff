package telemetry

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
)

// A Push sends metrics at intervals. Nil sends none.
type Push struct {
	provider *metric.MeterProvider
	log      *slog.Logger
}

// StartPush returns nil unless OpenTelemetry's standard environment variables name a
// collector of metrics. Otherwise it sends those of the gatherer, under the names that they
// have on the metrics page. The exporter, the interval and the resource read the other
// variables by themselves.
func StartPush(ctx context.Context, from prometheus.Gatherer, log *slog.Logger) (*Push, error) {
	protocol, attributes, err := prepare(ctx, "METRICS", log)
	if protocol == "" {
		return nil, err
	}
	exporter, err := newExporter(ctx, protocol)
	if err != nil {
		return nil, fmt.Errorf("start the exporter of metrics: %w", err)
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))
	return &Push{metric.NewMeterProvider(metric.WithResource(attributes), metric.WithReader(reader)), log}, nil
}

func newExporter(ctx context.Context, protocol string) (metric.Exporter, error) {
	if protocol == protocolGRPC {
		return otlpmetricgrpc.New(ctx)
	}
	return otlpmetrichttp.New(ctx)
}

// Close sends the metrics a last time. The stores that they read must still be open.
func (p *Push) Close() {
	if p != nil {
		shutdown("metrics", p.provider.Shutdown, p.log)
	}
}
