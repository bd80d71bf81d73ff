package main

import (
	"context"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxOperations bounds the values of the label operation; further operations
// are counted together as "other".
const maxOperations = 50

// released is the outcome of a request of which nothing was stored, such as one
// whose body was not valid: it is no miss, as no repeat could have been a hit.
const released = "released"

// unprotected is the outcome of a request that ran without its store: see
// httponce.Config.RunUnprotected.
const unprotected = "unprotected"

// metrics counts what an Observer is told. Keys and tenants are in no label.
type metrics struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec
	conflicts prometheus.Counter
	duration  *prometheus.HistogramVec
	inFlight  prometheus.Gauge

	hits, misses atomic.Int64

	cleaned       prometheus.Gauge
	cleanedTotal  prometheus.Counter
	cleanupErrors prometheus.Counter

	mu         sync.Mutex
	operations map[string]bool
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "idempotency_requests_total",
			Help: "Decisions about requests with a key, by outcome and operation.",
		}, []string{"outcome", "operation"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "idempotency_conflicts_total",
			Help: "Requests refused because their key was used for a different request.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "idempotency_duration_seconds",
			Help:    "Time from the request to its answer: executed, or replayed.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5, 5, 10, 30},
		}, []string{"outcome"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "idempotency_in_flight",
			Help: "Requests with a key that are being answered now, those that wait included.",
		}),
		cleaned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cleanup_count",
			Help: "Expired records deleted by the last cleanup cycle.",
		}),
		cleanedTotal: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleanup_records_total",
			Help: "Expired records deleted since the start.",
		}),
		cleanupErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleanup_errors_total",
			Help: "Cleanup cycles that ended with an error.",
		}),
		operations: make(map[string]bool),
	}
	hitRate := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "idempotency_hit_rate",
		Help: "Replayed answers as a percentage of replayed and executed ones since the start; NaN before the first.",
	}, m.hitRate)
	m.registry.MustRegister(m.requests, m.conflicts, m.duration, hitRate, m.inFlight,
		m.cleaned, m.cleanedTotal, m.cleanupErrors,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, outcome := range []string{onlyonce.OutcomeExecuted, onlyonce.OutcomeReplayed} {
		m.duration.WithLabelValues(outcome)
	}
	return m
}

// observe is an onlyonce.Observer.
func (m *metrics) observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomePurged {
		m.cleaned.Set(float64(e.Purged))
		m.cleanedTotal.Add(float64(e.Purged))
		if e.Err != nil {
			m.cleanupErrors.Inc()
		}
		return
	}
	outcome := e.Outcome
	if outcome == onlyonce.OutcomeExecuted && e.Record.State == "" {
		outcome = released
	}
	m.requests.WithLabelValues(outcome, m.operation(e.Record.ID.Operation)).Inc()
	switch outcome {
	case onlyonce.OutcomeReplayed:
		m.hits.Add(1)
		m.duration.WithLabelValues(outcome).Observe(e.Duration.Seconds())
	case onlyonce.OutcomeExecuted:
		m.misses.Add(1)
		m.duration.WithLabelValues(outcome).Observe(e.Duration.Seconds())
	case onlyonce.OutcomeFailed, onlyonce.OutcomeUnrecorded, onlyonce.OutcomeLost, unprotected:
		m.misses.Add(1)
	case onlyonce.OutcomeMismatch:
		m.conflicts.Inc()
	}
}

func (m *metrics) hitRate() float64 {
	hits, misses := float64(m.hits.Load()), float64(m.misses.Load())
	if hits+misses == 0 {
		return math.NaN()
	}
	return 100 * hits / (hits + misses)
}

// operation returns the label for an operation.
func (m *metrics) operation(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.operations[name] {
		if len(m.operations) == maxOperations {
			return "other"
		}
		m.operations[name] = true
	}
	return name
}

// countInFlight counts the requests with a key while h answers them.
func (m *metrics) countInFlight(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Idempotency-Key"]) > 0 {
			m.inFlight.Inc()
			defer m.inFlight.Dec()
		}
		h.ServeHTTP(w, r)
	})
}

// handler answers in Prometheus' text format.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
