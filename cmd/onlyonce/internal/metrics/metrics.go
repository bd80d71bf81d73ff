// Package metrics counts for Prometheus what serve, proxy and relay do.
package metrics

import (
	"context"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Set counts what Observers are told. Keys and tenants are in no label.
// docs/metrics.md lists them all.
type Set struct {
	Registry *prometheus.Registry

	requests  *prometheus.CounterVec
	conflicts *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	active    *prometheus.GaugeVec

	cleanedLast   *prometheus.GaugeVec
	cleaned       *prometheus.CounterVec
	cleanupErrors *prometheus.CounterVec

	storeErrors *prometheus.CounterVec // by kind and store
}

// New returns the metrics of a process, without any API so far.
func New() *Set {
	m := &Set{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_idempotency_requests_total",
			Help: "Decisions about requests with a key, by API, operation and outcome.",
		}, []string{"api", "operation", "outcome"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_idempotency_conflicts_total",
			Help: "Requests rejected because their key was used for a different request.",
		}, []string{"api"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "onlyonce_idempotency_duration_seconds",
			Help:    "Time from the end of reading a keyed request to its response, executed or replayed.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5, 5, 10, 30},
		}, []string{"api", "outcome"}),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "onlyonce_idempotency_active_requests",
			Help: "Requests with a key that are being handled now, including those that wait.",
		}, []string{"api"}),
		cleanedLast: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "onlyonce_cleanup_last_records",
			Help: "Expired records that the last cleanup cycle deleted.",
		}, []string{"store"}),
		cleaned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_cleanup_records_total",
			Help: "Expired records that were deleted since the start.",
		}, []string{"store"}),
		cleanupErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_cleanup_errors_total",
			Help: "Cleanup cycles that ended with an error.",
		}, []string{"store"}),
		storeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_store_errors_total",
			Help: "Errors of the store, met by requests, cleanup, the relay and readiness probes, by kind.",
		}, []string{"kind", "store"}),
	}
	m.Registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.requests, m.conflicts, m.duration, m.active, m.cleanedLast, m.cleaned, m.cleanupErrors, m.storeErrors)
	return m
}

// cleanup returns an Observer that counts the purges of a store.
func (m *Set) cleanup(store string) onlyonce.Observer {
	last, all, failed := m.cleanedLast.WithLabelValues(store), m.cleaned.WithLabelValues(store), m.cleanupErrors.WithLabelValues(store)
	return func(_ context.Context, e onlyonce.Event) {
		if e.Outcome != onlyonce.OutcomePurged {
			return
		}
		last.Set(float64(e.Purged))
		all.Add(float64(e.Purged))
		if e.Err != nil {
			failed.Inc()
		}
	}
}

// Handler returns the page of the metrics, in Prometheus' text format.
func (m *Set) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}
