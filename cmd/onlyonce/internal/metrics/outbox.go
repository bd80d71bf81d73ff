package metrics

import (
	"context"
	"math"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/prometheus/client_golang/prometheus"
)

// lagWithin bounds how long the queue may take to say what waits in it.
const lagWithin = 2 * time.Second

// An Outbox tells what waits in a queue, by the queue itself at the moment it is
// asked, and what this process's relay did.
type Outbox struct {
	queue    outbox.Queue
	messages *prometheus.CounterVec

	waiting, oldest, parked *prometheus.Desc
}

// NewOutbox returns the metrics of a queue, which are to be registered.
func NewOutbox(queue outbox.Queue) *Outbox {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	m := &Outbox{
		queue: queue,
		messages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "onlyonce_outbox_messages_total",
			Help: "Messages that the relay of this process has handled, by outcome.",
		}, []string{"outcome"}),
		waiting: describe("onlyonce_outbox_waiting", "Messages that are not published yet, not counting parked ones."),
		oldest:  describe("onlyonce_outbox_oldest_seconds", "Age of the oldest message that is not published yet, not counting parked ones; 0 if there is none."),
		parked:  describe("onlyonce_outbox_parked", "Messages that failed too often or can't be published and wait for someone to requeue or discard them."),
	}
	m.messages.WithLabelValues(string(outbox.OutcomePublished))
	return m
}

// Describe is for prometheus.
func (m *Outbox) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.waiting, m.oldest, m.parked} {
		to <- d
	}
	m.messages.Describe(to)
}

// Collect is for prometheus. While the queue can't be asked there is nothing to
// say of it.
func (m *Outbox) Collect(to chan<- prometheus.Metric) {
	m.messages.Collect(to)
	ctx, cancel := context.WithTimeout(context.Background(), lagWithin)
	defer cancel()
	lag, err := m.queue.Lag(ctx)
	if err != nil {
		return
	}
	for d, value := range map[*prometheus.Desc]float64{
		m.waiting: float64(lag.Waiting), m.oldest: lag.Oldest.Seconds(), m.parked: float64(lag.Parked),
	} {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
}

// Poisoned returns a gauge that asks count how many events the consumer gave up on;
// it is NaN while nobody can say.
func Poisoned(count func(context.Context) (int64, error)) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "onlyonce_inbox_poisoned",
		Help: "Events from a broker that the consumer gave up on and that wait for someone to retry or discard them.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), lagWithin)
		defer cancel()
		n, err := count(ctx)
		if err != nil {
			return math.NaN()
		}
		return float64(n)
	})
}

// Observe is an outbox.Observer.
func (m *Outbox) Observe(_ context.Context, e outbox.Event) {
	if e.Outcome != outbox.OutcomeLag {
		m.messages.WithLabelValues(string(e.Outcome)).Add(float64(e.Count))
	}
}
