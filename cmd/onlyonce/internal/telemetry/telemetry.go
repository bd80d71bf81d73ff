// Package telemetry sends the spans and the metrics of the commands with a server to an
// OpenTelemetry collector, which the standard environment variables name.
package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/version"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// wanted reports whether the environment asks for a signal: TRACES or METRICS.
func wanted(signal string) bool {
	switch exporter := os.Getenv("OTEL_" + signal + "_EXPORTER"); {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false
	default:
		return exporter != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
	}
}

// The protocols by which a signal is sent.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// protocolOf returns the protocol by which a signal is sent.
func protocolOf(signal string) (string, error) {
	if exporter := cmp.Or(os.Getenv("OTEL_"+signal+"_EXPORTER"), "otlp"); exporter != "otlp" {
		return "", cli.Usagef("OTEL_%s_EXPORTER is %q: set it to otlp or none", signal, exporter)
	}
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), protocolHTTP); protocol {
	case protocolHTTP, protocolGRPC:
		return protocol, nil
	default:
		return "", cli.Usagef("OTEL_EXPORTER_OTLP_PROTOCOL is %q: set it to %s or %s", protocol, protocolHTTP, protocolGRPC)
	}
}

// prepare returns the protocol by which a signal is sent, and the attributes of the process. An
// empty protocol means that the environment does not ask for the signal.
func prepare(ctx context.Context, signal string, log *slog.Logger) (protocol string, attributes *resource.Resource, err error) {
	if !wanted(signal) {
		return "", nil, nil
	}
	if protocol, err = protocolOf(signal); err != nil {
		return "", nil, err
	}
	if attributes, err = attributesOf(ctx); err != nil {
		return "", nil, err
	}
	logErrors(log)
	return protocol, attributes, nil
}

// attributesOf returns the attributes of the process.
func attributesOf(ctx context.Context) (*resource.Resource, error) {
	attributes, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "onlyonce"), attribute.String("service.version", version.Program()),
	), resource.WithFromEnv()) // which wins
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return attributes, nil
}

// logErrors makes the SDK log telemetry that it could not send.
func logErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("sending telemetry failed", "error", err) }))
}

// flushTimeout limits how long sending the last telemetry may take.
const flushTimeout = 5 * time.Second

// shutdown sends the last telemetry. An unreachable collector does not make a command fail.
func shutdown(what string, f func(context.Context) error, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		log.Warn("sending the last telemetry failed", "signal", what, "error", err)
	}
}
