package telemetry

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTelemetry_IsOffUnlessTheEnvironmentNamesACollector(t *testing.T) {
	const nowhere = "http://127.0.0.1:1"
	for _, c := range []struct {
		env             map[string]string
		traces, metrics bool
		fail            string
	}{
		{},
		{env: map[string]string{"OTEL_SERVICE_NAME": "shop"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere, "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere, "OTEL_TRACES_EXPORTER": "none"}, metrics: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere, "OTEL_METRICS_EXPORTER": "none"}, traces: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere}, traces: true, metrics: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": nowhere + "/v1/traces"}, traces: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": nowhere + "/v1/metrics"}, metrics: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, traces: true},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "otlp"}, metrics: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": nowhere, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, traces: true, metrics: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, fail: "OTEL_TRACES_EXPORTER is \"zipkin\": set it to otlp or none"},
		{env: map[string]string{"OTEL_METRICS_EXPORTER": "prometheus"}, fail: "OTEL_METRICS_EXPORTER is \"prometheus\": set it to otlp or none"},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, fail: "set it to http/protobuf or grpc"},
	} {
		for _, name := range []string{
			"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
			"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_SERVICE_NAME",
		} {
			t.Setenv(name, c.env[name])
		}
		t.Setenv("OTEL_METRIC_EXPORT_TIMEOUT", "100")
		log := slog.New(slog.DiscardHandler)
		tracing, err := StartTracing(t.Context(), log)
		push, errPush := StartPush(t.Context(), prometheus.NewRegistry(), log)
		if err == nil {
			err = errPush
		}
		if (tracing != nil) != c.traces || (push != nil) != c.metrics || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%v: traces %v, metrics %v, error %v", c.env, tracing != nil, push != nil, err)
		}
		tracing.Close()
		push.Close()
	}
}
