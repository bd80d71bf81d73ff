package metrics

import (
	"context"
	"math"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
	"github.com/prometheus/client_golang/prometheus"
)

// maxOperations bounds the values of the label operation of one API; further
// operations are counted together as "other".
const maxOperations = 50

// released is the outcome of a request of which nothing was stored, such as one
// whose body was not valid: it is no miss, as no repeat could have been a hit.
const released = "released"

// unprotected is the outcome of a request that ran without its store: see
// httponce.Config.RunUnprotected.
const unprotected = "unprotected"

// OtherOperations is the label of those that have no series of their own.
const OtherOperations = "other"

// An API counts what becomes of the requests to one API.
type API struct {
	requests           *prometheus.CounterVec // by operation and outcome
	conflicts          prometheus.Counter
	executed, replayed prometheus.Observer // how long it took
	Active             prometheus.Gauge

	hits, misses atomic.Int64

	mu         sync.Mutex
	operations map[string]bool
}

// API returns the metrics of an API, which are there from now on. It panics if they
// were asked for before.
func (m *Set) API(name string) *API {
	a := &API{
		requests:   m.requests.MustCurryWith(prometheus.Labels{"api": name}),
		conflicts:  m.conflicts.WithLabelValues(name),
		executed:   m.duration.WithLabelValues(name, string(onlyonce.OutcomeExecuted)),
		replayed:   m.duration.WithLabelValues(name, string(onlyonce.OutcomeReplayed)),
		Active:     m.active.WithLabelValues(name),
		operations: make(map[string]bool),
	}
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "onlyonce_idempotency_hit_rate",
		Help:        "Replayed responses as a percentage of replayed and executed ones since the start; NaN before the first.",
		ConstLabels: prometheus.Labels{"api": name},
	}, a.hitRate))
	return a
}

// Observe is an onlyonce.Observer.
func (a *API) Observe(_ context.Context, e onlyonce.Event) {
	if e.Record.ID.Key == "" { // a request without a key, or a purge: see metrics.cleanup
		return
	}
	outcome := e.Outcome
	if outcome == onlyonce.OutcomeExecuted && e.Record.State == "" {
		outcome = released
	}
	a.requests.WithLabelValues(a.operation(e.Record.ID.Operation), string(outcome)).Inc()
	switch outcome {
	case onlyonce.OutcomeReplayed:
		a.hits.Add(1)
		a.replayed.Observe(e.Duration.Seconds())
	case onlyonce.OutcomeExecuted:
		a.misses.Add(1)
		a.executed.Observe(e.Duration.Seconds())
	case onlyonce.OutcomeFailed, onlyonce.OutcomeUnrecorded, onlyonce.OutcomeLost, unprotected:
		a.misses.Add(1)
	case onlyonce.OutcomeMismatch:
		a.conflicts.Inc()
	}
}

func (a *API) hitRate() float64 {
	hits, misses := float64(a.hits.Load()), float64(a.misses.Load())
	if hits+misses == 0 {
		return math.NaN()
	}
	return 100 * hits / (hits + misses)
}

// operation returns the label for an operation.
func (a *API) operation(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.operations[name] {
		if len(a.operations) == maxOperations {
			return OtherOperations
		}
		a.operations[name] = true
	}
	return name
}

// CountActive counts the keyed requests while h handles them. Only a POST can
// be one: the APIs protect no other method.
func (a *API) CountActive(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && len(r.Header["Idempotency-Key"]) > 0 {
			a.Active.Inc()
			defer a.Active.Dec()
		}
		h.ServeHTTP(w, r)
	})
}
