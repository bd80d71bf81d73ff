package metrics

import (
	"context"
	"errors"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/prometheus/client_golang/prometheus"
)

// StoreErrors count the errors of a store by kind.
type StoreErrors struct {
	kinds map[storeurl.ErrorKind]prometheus.Counter
}

// StoreErrors returns those of a store.
func (m *Set) StoreErrors(store string) StoreErrors {
	s := StoreErrors{make(map[storeurl.ErrorKind]prometheus.Counter)}
	for _, kind := range storeurl.ErrorKinds {
		s.kinds[kind] = m.storeErrors.WithLabelValues(string(kind), store)
	}
	return s
}

// Count counts an error. One that a caller has caused by leaving is none of the store's.
func (s StoreErrors) Count(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.kinds[storeurl.KindOf(err)].Inc()
	}
}

// Observe is an onlyonce.Observer.
func (s StoreErrors) Observe(_ context.Context, e onlyonce.Event) {
	switch e.Outcome {
	case onlyonce.OutcomeCorrupt:
		s.kinds[storeurl.Corrupt].Inc()
	case onlyonce.OutcomeUnavailable, onlyonce.OutcomeUnrecorded, onlyonce.OutcomePurged:
		s.Count(e.Err)
	case onlyonce.OutcomeUnknown:
		if errors.Is(e.Err, onlyonce.ErrInDoubt) { // the store did not say whether it committed
			s.Count(e.Err)
		}
	}
}

// ObserveOutbox is an outbox.Observer.
func (s StoreErrors) ObserveOutbox(_ context.Context, e outbox.Event) {
	if e.Outcome == outbox.OutcomeTrouble {
		s.Count(e.Err)
	}
}
