package promonce_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/prometheus/client_golang/prometheus"
)

func Example() {
	metrics := promonce.New(promonce.Config{})
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)

	store := memstore.New(memstore.Config{}) // any store
	records := metrics.Store("main")
	records.Watch(store)

	payments := records.API("payments")
	guard := onlyonce.New(store, onlyonce.Config{
		Observer: onlyonce.Tee(payments.Observe, onlyonce.SlogObserver(slog.Default(), nil)),
	})
	payments.Watch(guard)

	charge := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: "k"}, SkipFingerprint: true}
	for range 4 {
		_, err := onlyonce.Do(context.Background(), guard, charge, func(context.Context) (time.Time, error) {
			return time.Now(), nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if family.GetName() == "onlyonce_idempotency_hit_rate" {
			fmt.Println(family.GetMetric()[0].GetGauge().GetValue(), "percent of the responses are replays")
		}
	}
	// Output: 75 percent of the responses are replays
}
