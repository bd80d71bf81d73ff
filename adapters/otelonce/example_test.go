package otelonce_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/otelonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"go.opentelemetry.io/otel"
)

func Example() {
	// The program has set the providers of its SDK with otel.SetMeterProvider and
	// otel.SetTracerProvider.
	telemetry, err := otelonce.New(otelonce.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New(memstore.Config{}) // any store
	telemetry.WatchStore(store)
	guard := onlyonce.New(store, onlyonce.Config{
		Observer:    onlyonce.Tee(telemetry.Observe, onlyonce.SlogObserver(slog.Default(), nil)),
		Traceparent: otelonce.Traceparent,
	})
	telemetry.WatchGuard(guard)

	ctx, span := otel.Tracer("shop").Start(context.Background(), "POST /charges")
	defer span.End()
	charge := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: "k"}, SkipFingerprint: true}
	for range 2 {
		answer, err := onlyonce.Do(ctx, guard, charge, func(context.Context) (string, error) { return "ch_1", nil })
		fmt.Println(answer.Value, answer.Replayed, err)
	}
	// Output:
	// ch_1 false <nil>
	// ch_1 true <nil>
}
