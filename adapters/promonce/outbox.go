package promonce

import (
	"context"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/prometheus/client_golang/prometheus"
)

// An Outbox exports the messages that wait in a queue, and counts what this process's
// relay does.
type Outbox struct {
	store *Store
	queue outbox.Queue
}

var messageOutcomes = map[outbox.Outcome]bool{
	outbox.OutcomePublished: true, outbox.OutcomeFailed: true, outbox.OutcomeParked: true, outbox.OutcomeUnavailable: true,
	outbox.OutcomeLost: true, outbox.OutcomeTrouble: true, outbox.OutcomePurged: true,
}

// Outbox returns the metrics of a queue in the store, which is called each time the
// metrics are collected. A Metrics has one: Outbox panics when it is called again.
func (s *Store) Outbox(queue outbox.Queue) *Outbox {
	m := s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outbox != nil {
		panic("promonce: there is an Outbox already: make another Metrics for another queue")
	}
	m.outbox = &Outbox{s, queue}
	m.messages.WithLabelValues(string(outbox.OutcomePublished))
	return m.outbox
}

// Observe is an outbox.Observer. It also counts the errors of the store.
func (o *Outbox) Observe(_ context.Context, e outbox.Event) {
	if e.Outcome == outbox.OutcomeTrouble {
		o.store.CountError(e.Err)
	}
	if messageOutcomes[e.Outcome] {
		o.store.metrics.messages.WithLabelValues(string(e.Outcome)).Add(float64(e.Count))
	}
}

func (o *Outbox) collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), defaults.CountWithin)
	defer cancel()
	lag, err := o.queue.Lag(ctx)
	if err != nil {
		return
	}
	m := o.store.metrics
	gauge(to, m.waiting, float64(lag.Waiting))
	gauge(to, m.oldest, lag.Oldest.Seconds())
	gauge(to, m.parked, float64(lag.Parked))
}
