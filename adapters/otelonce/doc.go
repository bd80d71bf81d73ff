// Package otelonce reports what a program does with Onlyonce to OpenTelemetry, as metrics and
// as spans. It needs the API of OpenTelemetry only: the program chooses the SDK.
//
//	telemetry, err := otelonce.New(otelonce.Config{})
//	…
//	store, err := sqlstore.Open(ctx, db, sqlstore.Config{Observer: telemetry.Observe})
//	…
//	telemetry.WatchStore(store)
//	guard := onlyonce.New(store, onlyonce.Config{Observer: telemetry.Observe, Traceparent: otelonce.Traceparent})
//	telemetry.WatchGuard(guard)
//
// A Guard with an Observer logs nothing by itself. To keep the log, pass
// onlyonce.Tee(telemetry.Observe, onlyonce.SlogObserver(slog.Default(), nil)).
//
// # Metrics
//
// The attributes of the metrics are onlyonce.operation, onlyonce.outcome, onlyonce.kind and
// those of Config.Attributes. Keys, tenants, requests and responses are in no attribute, and the
// number of operations is limited: see Config.MaxOperations. docs/metrics.md lists the
// metrics.
//
// # Spans
//
// A decision whose caller's context has a recording span gets a span of its own below it,
// named "idempotency " and the outcome. It begins when the caller's request began, so that of
// an executed command covers the run. Its attributes are onlyonce.operation, onlyonce.outcome,
// onlyonce.attempt and onlyonce.record_id, a hash of the ID under which the log and onlyonce
// records know the record. A span of a replay, or of another decision about the record of an
// earlier attempt, is linked to the span in which that attempt ran, if the Guard has
// Traceparent and that span was sampled.
package otelonce
