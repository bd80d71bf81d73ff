package promonce

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/prometheus/client_golang/prometheus"
)

// A Store counts the errors and the purges of one store, and exports how many of its
// records are unresolved.
type Store struct {
	metrics *Metrics
	name    string
	errors  map[ErrorKind]prometheus.Counter

	mu      sync.Mutex // guards the fields below
	watched Unresolver
	purges  *purges
}

// purges count the cleanup cycles of a store.
type purges struct {
	last        prometheus.Gauge
	all, failed prometheus.Counter
	succeeded   time.Time // when a cycle last ended without an error
}

// An Unresolver counts the records with an unknown outcome, and says for how long the
// oldest of them has had it. The stores of Onlyonce are Unresolvers.
type Unresolver interface {
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
}

// An ErrorKind is the meaning of a store's error for an operator. It is the value of the
// label kind.
type ErrorKind string

// These are the kinds of errors.
const (
	KindUnavailable ErrorKind = "unavailable" // the store did not respond, or responded that it is not able to work
	KindFull        ErrorKind = "full"        // the disk, the database or the memory is full
	KindReadOnly    ErrorKind = "read_only"   // nothing can be written
	KindCorrupt     ErrorKind = "corrupt"     // a record or the database cannot be read
	KindOther       ErrorKind = "other"       // the server rejected the call, or Config.ErrorKind returned none of the kinds
)

// KindOf returns KindCorrupt for an error that is onlyonce.ErrCorrupt, and KindUnavailable
// for any other error, because it knows no database drivers. To distinguish more kinds, set
// Config.ErrorKind to a function that knows the errors of your driver.
func KindOf(err error) ErrorKind {
	if errors.Is(err, onlyonce.ErrCorrupt) {
		return KindCorrupt
	}
	return KindUnavailable
}

// Store returns the metrics of the store with the name, which is the value of the label
// store. It panics if the name is not UTF-8.
func (m *Metrics) Store(name string) *Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.stores[name]; ok {
		return s
	}
	s := &Store{metrics: m, name: name, errors: make(map[ErrorKind]prometheus.Counter)}
	for _, kind := range []ErrorKind{KindUnavailable, KindFull, KindReadOnly, KindCorrupt, KindOther} {
		s.errors[kind] = m.storeErrors.WithLabelValues(string(kind), name)
	}
	m.stores[name] = s
	return s
}

// Watch exports the number and the age of the store's unresolved records, if store is an
// Unresolver. The store is called each time the metrics are collected.
func (s *Store) Watch(store any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched, _ = store.(Unresolver)
}

// Purges returns an onlyonce.Observer that counts the purges of the store and their
// errors. It is for the Config of a store that purges itself in the background. The
// metrics of cleanup exist from then on.
func (s *Store) Purges() onlyonce.Observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanup()
	return func(_ context.Context, e onlyonce.Event) { s.observe(&e) }
}

// cleanup returns the metrics of the store's purges. The caller holds the lock.
func (s *Store) cleanup() *purges {
	if s.purges == nil {
		m := s.metrics
		s.purges = &purges{
			last: m.cleanedLast.WithLabelValues(s.name), all: m.cleaned.WithLabelValues(s.name), failed: m.cleanupErrors.WithLabelValues(s.name),
			succeeded: m.now(),
		}
	}
	return s.purges
}

// CountError counts an error of the store that no Observer reports. Nil is none, and
// neither is one that a caller has caused by leaving (context.Canceled).
func (s *Store) CountError(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	counter, ok := s.errors[s.metrics.kindOf(err)]
	if !ok {
		counter = s.errors[KindOther]
	}
	counter.Inc()
}

// observe counts the calls of the store that an event describes.
func (s *Store) observe(e *onlyonce.Event) {
	switch e.Outcome {
	case onlyonce.OutcomeCorrupt:
		s.errors[KindCorrupt].Inc()
	case onlyonce.OutcomeUnavailable, onlyonce.OutcomeUnrecorded:
		s.CountError(e.Err)
	case onlyonce.OutcomePurged:
		s.CountError(e.Err)
		s.purged(e)
	case onlyonce.OutcomeUnknown:
		if errors.Is(e.Err, onlyonce.ErrInDoubt) { // the store did not say whether it committed
			s.CountError(e.Err)
		}
	}
}

func (s *Store) purged(e *onlyonce.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.cleanup()
	p.last.Set(float64(e.Purged))
	p.all.Add(float64(e.Purged))
	if e.Err != nil {
		p.failed.Inc()
	} else {
		p.succeeded = s.metrics.now()
	}
}

func (s *Store) collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	watched, purges := s.watched, s.purges
	if purges != nil {
		gauge(to, s.metrics.cleanupLag, s.metrics.now().Sub(purges.succeeded).Seconds(), s.name)
	}
	s.mu.Unlock()
	if watched == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), defaults.CountWithin)
	defer cancel()
	n, oldest, err := watched.Unresolved(ctx)
	if err != nil {
		return
	}
	gauge(to, s.metrics.unresolved, float64(n), s.name)
	gauge(to, s.metrics.unresolvedOldest, oldest.Seconds(), s.name)
}
