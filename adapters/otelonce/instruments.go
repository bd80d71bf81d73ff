package otelonce

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// instruments are the instruments of all measurements.
type instruments struct {
	requests, conflicts                            metric.Int64Counter
	duration                                       metric.Float64Histogram
	cleaned, cleanupErrors, storeErrors, published metric.Int64Counter
	cleanedLast                                    metric.Int64Gauge

	hitRate, unresolvedOldest, cleanupLag, outboxOldest metric.Float64ObservableGauge
	active                                              metric.Int64ObservableUpDownCounter
	unresolved, waiting, parked                         metric.Int64ObservableGauge
}

// make makes the instruments, and calls report each time they are collected.
func (i *instruments) make(m metric.Meter, report metric.Callback) error {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		note(err)
		return c
	}
	seconds := func(name, unit, description string) metric.Float64ObservableGauge {
		g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		note(err)
		return g
	}
	count := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		note(err)
		return g
	}
	i.requests = counter("onlyonce.idempotency.requests", "{request}", "Decisions about requests with a key, by operation and outcome.")
	i.conflicts = counter("idempotency.conflicts", "{request}", "Requests rejected because their key was used for a different request.")
	i.hitRate = seconds("idempotency.hit_rate", "%", "Replayed responses as a percentage of replayed and executed ones since the start.")
	var err error
	i.duration, err = m.Float64Histogram("onlyonce.idempotency.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the end of reading a keyed request to its response, executed or replayed."),
		metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5, 5, 10, 30))
	note(err)
	i.active, err = m.Int64ObservableUpDownCounter("onlyonce.idempotency.active_requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests with a key that are being handled now, including those that wait."))
	note(err)
	i.unresolved = count("onlyonce.idempotency.unresolved", "{record}", "Records with an unknown outcome: those recorded as unknown, those whose lease has lapsed, and those in a state that no store writes.")
	i.unresolvedOldest = seconds("onlyonce.idempotency.unresolved.oldest", "s", "How long the oldest record with an unknown outcome has had it; 0 if there is none.")
	i.cleanedLast, err = m.Int64Gauge("cleanup.count", metric.WithUnit("{record}"), metric.WithDescription("Expired records that the last cleanup cycle deleted."))
	note(err)
	i.cleaned = counter("onlyonce.cleanup.records", "{record}", "Expired records that were deleted since the start.")
	i.cleanupErrors = counter("onlyonce.cleanup.errors", "{cycle}", "Cleanup cycles that ended with an error.")
	i.cleanupLag = seconds("onlyonce.cleanup.lag", "s", "Time since a cleanup cycle last ended without an error; no record that expired earlier is left.")
	i.storeErrors = counter("onlyonce.store.errors", "{error}", "Errors of the store, met by requests, cleanup and the relay, by kind.")
	i.published = counter("onlyonce.outbox.messages", "{message}", "Messages that the relay of this process has handled, by outcome.")
	i.waiting = count("onlyonce.outbox.waiting", "{message}", "Messages that are not published yet, not counting parked ones.")
	i.outboxOldest = seconds("onlyonce.outbox.oldest", "s", "Age of the oldest message that is not published yet, not counting parked ones; 0 if there is none.")
	i.parked = count("onlyonce.outbox.parked", "{message}", "Messages that failed too often or can't be published and wait for someone to requeue or discard them.")
	if len(errs) == 0 {
		_, err := m.RegisterCallback(report, i.hitRate, i.active, i.unresolved, i.unresolvedOldest, i.cleanupLag, i.waiting, i.outboxOldest, i.parked)
		note(err)
	}
	return errors.Join(errs...)
}
