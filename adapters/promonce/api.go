package promonce

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/prometheus/client_golang/prometheus"
)

// An API counts the outcomes of the requests of one API, or of one kind of work.
type API struct {
	store              *Store
	name               string
	conflicts          prometheus.Counter
	executed, replayed prometheus.Observer // how long it took
	hits, misses       atomic.Int64

	counters atomic.Pointer[map[series]prometheus.Counter] // replaced by each new series
	mu       sync.Mutex                                    // guards the fields below, and the replacement
	names    map[string]bool                               // of operations that have series of their own
	watched  []InFlighter
}

// A series is one of the requests of an API.
type series struct {
	operation string
	outcome   onlyonce.Outcome
}

// An InFlighter counts requests that are being handled, as a Guard does.
type InFlighter interface{ InFlight() int }

// The outcomes that are counted besides those of onlyonce: a release, which no repeat
// could have hit, and a command that ran unprotected (httponce.Config.RunUnprotected).
const (
	released    onlyonce.Outcome = "released"
	unprotected onlyonce.Outcome = "unprotected"
)

var outcomes = map[onlyonce.Outcome]bool{
	onlyonce.OutcomeExecuted: true, onlyonce.OutcomeReplayed: true, onlyonce.OutcomeMismatch: true, onlyonce.OutcomeInFlight: true,
	onlyonce.OutcomeWaited: true, onlyonce.OutcomeFailed: true, onlyonce.OutcomeUnknown: true, onlyonce.OutcomeHeld: true,
	onlyonce.OutcomeTakenOver: true, onlyonce.OutcomeLost: true, onlyonce.OutcomeUnrecorded: true, onlyonce.OutcomeCorrupt: true,
	onlyonce.OutcomeUnavailable: true, onlyonce.OutcomeKeyExpired: true, released: true, unprotected: true,
}

// longestOperation is how many bytes of a label an operation may have.
const longestOperation = 128

// API returns the metrics of the API with the name, whose records are in the store. The
// name is the value of the label api. It panics if the name is that of another store's
// API, or not UTF-8.
func (s *Store) API(name string) *API {
	m := s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := m.apis[name]; ok {
		if a.store != s {
			panic("promonce: the API " + name + " belongs to another store: give each API a name of its own")
		}
		return a
	}
	a := &API{
		store: s, name: name,
		conflicts: m.conflicts.WithLabelValues(name),
		executed:  m.duration.WithLabelValues(name, string(onlyonce.OutcomeExecuted)),
		replayed:  m.duration.WithLabelValues(name, string(onlyonce.OutcomeReplayed)),
		names:     make(map[string]bool),
	}
	a.counters.Store(new(map[series]prometheus.Counter))
	m.apis[name] = a
	return a
}

// Store returns the metrics of the API's store.
func (a *API) Store() *Store { return a.store }

// Watch exports the number of requests that g is handling as active requests of the API.
// Several Guards are added up.
func (a *API) Watch(g InFlighter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watched = append(a.watched, g)
}

// Observe is an onlyonce.Observer. It also counts the errors of the API's store.
func (a *API) Observe(_ context.Context, e onlyonce.Event) {
	a.store.observe(&e)
	if e.Record.ID.Key == "" { // a request without a key, or a purge
		return
	}
	outcome := e.Outcome
	switch {
	case outcome == onlyonce.OutcomeExecuted && e.Record.State == "":
		outcome = released
	case !outcomes[outcome]:
		outcome = Other
	}
	a.counter(series{e.Record.ID.Operation, outcome}).Inc()
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

// counter returns the counter of a series, or that of all operations without series of
// their own.
func (a *API) counter(s series) prometheus.Counter {
	if c, ok := (*a.counters.Load())[s]; ok {
		return c
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.operation = a.operation(s.operation)
	counters := *a.counters.Load()
	if c, ok := counters[s]; ok {
		return c
	}
	more := make(map[series]prometheus.Counter, len(counters)+1)
	for known, c := range counters {
		more[known] = c
	}
	c := a.store.metrics.requests.WithLabelValues(a.name, s.operation, string(s.outcome))
	more[s] = c
	a.counters.Store(&more)
	return c
}

// operation returns the label for an operation. The caller holds the lock.
func (a *API) operation(name string) string {
	switch {
	case a.names[name]:
		return name
	case name == Other, len(name) > longestOperation, !utf8.ValidString(name), len(a.names) == a.store.metrics.maxOperations:
		return Other
	}
	name = strings.Clone(name) // it may be part of a request
	a.names[name] = true
	return name
}

func (a *API) collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	watched := a.watched
	a.mu.Unlock()
	if len(watched) > 0 {
		n := 0
		for _, g := range watched {
			n += g.InFlight()
		}
		gauge(to, a.store.metrics.active, float64(n), a.name)
	}
	gauge(to, a.store.metrics.hitRate, a.hitRate(), a.name)
}

func (a *API) hitRate() float64 {
	hits, misses := float64(a.hits.Load()), float64(a.misses.Load())
	if hits+misses == 0 {
		return math.NaN()
	}
	return 100 * hits / (hits + misses)
}
