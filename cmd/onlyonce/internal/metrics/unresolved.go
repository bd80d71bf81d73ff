package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// An unresolver counts the records with an unknown outcome, and says for how
// long that has been so of the oldest.
type unresolver interface {
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
}

// unresolvedMetrics tell what is unresolved in a store at the moment they are
// asked for.
type unresolvedMetrics struct {
	store         unresolver
	count, oldest *prometheus.Desc
}

// Unresolved adds the metrics of a store to the page, if the store can count.
func (m *Set) Unresolved(name string, store any) {
	u, ok := store.(unresolver)
	if !ok {
		return
	}
	describe := func(metric, help string) *prometheus.Desc {
		return prometheus.NewDesc(metric, help, nil, prometheus.Labels{"store": name})
	}
	m.Registry.MustRegister(&unresolvedMetrics{
		store:  u,
		count:  describe("onlyonce_idempotency_unresolved", "Records with an unknown outcome: those recorded as unknown, those whose lease has lapsed, and those in a state that no store writes."),
		oldest: describe("onlyonce_idempotency_unresolved_oldest_seconds", "How long the oldest record with an unknown outcome has had it; 0 if there is none."),
	})
}

// Describe is for prometheus.
func (m *unresolvedMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.count
	to <- m.oldest
}

// Collect is for prometheus. While the store can't be asked there is nothing to
// say of it.
func (m *unresolvedMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lagWithin)
	defer cancel()
	n, oldest, err := m.store.Unresolved(ctx)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(n))
	to <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest.Seconds())
}
