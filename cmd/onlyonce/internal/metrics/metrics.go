// Package metrics makes the metrics of the commands with a server, for Prometheus.
package metrics

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/promonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Set holds the metrics that a process exports.
type Set struct {
	*promonce.Metrics
	Registry *prometheus.Registry
}

// New returns the metrics of a process, without any API or store so far.
func New() *Set {
	m := &Set{promonce.New(promonce.Config{ErrorKind: storeurl.KindOf}), prometheus.NewRegistry()}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.Metrics)
	return m
}

// Handler returns the page of the metrics, in Prometheus' text format.
func (m *Set) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}

// Purges returns the Observer of a store's purges, which counts and logs them. The name
// is the store's in the metrics.
func (m *Set) Purges(name string, log *slog.Logger) onlyonce.Observer {
	return onlyonce.Tee(m.Store(name).Purges(), onlyonce.SlogObserver(log, nil))
}

// An API counts the outcomes of the requests to one API, and the requests with a key that
// are being handled.
type API struct {
	*promonce.API
	Active atomic.Int64
}

// API returns the metrics of an API with records in a store.
func (m *Set) API(store, name string) *API {
	a := &API{API: m.Store(store).API(name)}
	a.Watch(a)
	return a
}

// InFlight implements promonce.InFlighter.
func (a *API) InFlight() int { return int(a.Active.Load()) }

// CountActive counts the keyed requests while h handles them. Only a POST can
// be one: the APIs protect no other method.
func (a *API) CountActive(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && len(r.Header["Idempotency-Key"]) > 0 {
			a.Active.Add(1)
			defer a.Active.Add(-1)
		}
		h.ServeHTTP(w, r)
	})
}

// Poisoned returns a gauge that asks count how many events the consumer gave up on;
// it is NaN while nobody can say.
func Poisoned(count func(context.Context) (int64, error)) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "onlyonce_inbox_poisoned",
		Help: "Events from a broker that the consumer gave up on and that wait for someone to retry or discard them.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), defaults.CountWithin)
		defer cancel()
		n, err := count(ctx)
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	})
}
