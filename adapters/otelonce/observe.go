package otelonce

import (
	"context"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The outcomes that are counted besides those of onlyonce: a release, which no repeat
// could have hit, and a command that ran unprotected (httponce.Config.RunUnprotected).
const (
	released    onlyonce.Outcome = "released"
	unprotected onlyonce.Outcome = "unprotected"
)

// spanNames has a name for the span of every outcome that is known.
var spanNames = func() map[onlyonce.Outcome]string {
	names := make(map[onlyonce.Outcome]string)
	for _, o := range []onlyonce.Outcome{
		onlyonce.OutcomeExecuted, onlyonce.OutcomeReplayed, onlyonce.OutcomeMismatch, onlyonce.OutcomeInFlight, onlyonce.OutcomeWaited,
		onlyonce.OutcomeFailed, onlyonce.OutcomeUnknown, onlyonce.OutcomeHeld, onlyonce.OutcomeTakenOver, onlyonce.OutcomeLost,
		onlyonce.OutcomeUnrecorded, onlyonce.OutcomeCorrupt, onlyonce.OutcomeUnavailable, onlyonce.OutcomeKeyExpired, released, unprotected, Other,
	} {
		names[o] = "idempotency " + string(o)
	}
	return names
}()

// Observe is an onlyonce.Observer, for Guards and for stores that purge themselves.
func (t *Telemetry) Observe(ctx context.Context, e onlyonce.Event) {
	t.observeStore(ctx, &e)
	if e.Record.ID.Key == "" { // a request without a key, or a purge
		return
	}
	outcome := e.Outcome
	if outcome == onlyonce.OutcomeExecuted && e.Record.State == "" {
		outcome = released
	} else if _, known := spanNames[outcome]; !known {
		outcome = Other
	}
	p := t.point(series{e.Record.ID.Operation, outcome})
	i := &t.instruments
	i.requests.Add(ctx, 1, p.add...)
	switch outcome {
	case onlyonce.OutcomeReplayed:
		t.hits.Add(1)
		i.duration.Record(ctx, e.Duration.Seconds(), p.record...)
	case onlyonce.OutcomeExecuted:
		t.misses.Add(1)
		i.duration.Record(ctx, e.Duration.Seconds(), p.record...)
	case onlyonce.OutcomeFailed, onlyonce.OutcomeUnrecorded, onlyonce.OutcomeLost, unprotected:
		t.misses.Add(1)
	case onlyonce.OutcomeMismatch:
		i.conflicts.Add(ctx, 1, t.common)
	}
	if trace.SpanFromContext(ctx).IsRecording() {
		t.span(ctx, p, &e)
	}
}

// span makes the span of a decision, which has ended.
func (t *Telemetry) span(ctx context.Context, p *point, e *onlyonce.Event) {
	now := time.Now()
	options := []trace.SpanStartOption{
		trace.WithTimestamp(now.Add(-e.Duration)),
		trace.WithAttributes(t.cfg.Attributes...),
		trace.WithAttributes(
			keyOperation.String(p.operation), keyOutcome.String(string(p.outcome)), keyAttempt.Int(e.Record.Attempt),
			keyRecordID.String(e.Record.ID.HexHash()[:16]),
		),
	}
	if link := parse(e.Record.Result.Traceparent); link.IsValid() && ofEarlier(p.outcome) {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: link}))
	}
	_, span := t.tracer.Start(ctx, spanNames[p.outcome], options...)
	if failed(p.outcome) {
		span.SetStatus(codes.Error, string(p.outcome))
	}
	span.End(trace.WithTimestamp(now))
}

// ofEarlier reports whether the record of an event with this outcome is that of an earlier
// attempt.
func ofEarlier(o onlyonce.Outcome) bool {
	switch o {
	case onlyonce.OutcomeReplayed, onlyonce.OutcomeMismatch, onlyonce.OutcomeHeld, onlyonce.OutcomeCorrupt:
		return true
	}
	return false
}

// failed reports whether an outcome is an error of the program or of its store. The text of the
// error is not in the span, because it may contain anything: the log has it.
func failed(o onlyonce.Outcome) bool {
	switch o {
	case onlyonce.OutcomeFailed, onlyonce.OutcomeUnknown, onlyonce.OutcomeLost, onlyonce.OutcomeUnrecorded, onlyonce.OutcomeCorrupt, onlyonce.OutcomeUnavailable:
		return true
	}
	return false
}

// observeStore measures the calls of the store that an event describes.
func (t *Telemetry) observeStore(ctx context.Context, e *onlyonce.Event) {
	switch e.Outcome {
	case onlyonce.OutcomeCorrupt:
		t.countError(ctx, onlyonce.ErrCorrupt)
	case onlyonce.OutcomeUnavailable, onlyonce.OutcomeUnrecorded:
		t.countError(ctx, e.Err)
	case onlyonce.OutcomeUnknown:
		if errors.Is(e.Err, onlyonce.ErrInDoubt) { // the store did not say whether it committed
			t.countError(ctx, e.Err)
		}
	case onlyonce.OutcomePurged:
		i := &t.instruments
		i.cleanedLast.Record(ctx, int64(e.Purged), t.common)
		i.cleaned.Add(ctx, int64(e.Purged), t.common)
		if e.Err != nil {
			t.countError(ctx, e.Err)
			i.cleanupErrors.Add(ctx, 1, t.common)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.purged = time.Now()
	}
}

// countError counts an error of the store, unless the caller caused it by canceling its context.
func (t *Telemetry) countError(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		t.instruments.storeErrors.Add(ctx, 1, t.with(keyKind.String(t.cfg.ErrorKind(err))))
	}
}

// ObserveOutbox is an outbox.Observer.
func (t *Telemetry) ObserveOutbox(ctx context.Context, e outbox.Event) {
	if e.Outcome == outbox.OutcomeTrouble {
		t.countError(ctx, e.Err)
	}
	if e.Outcome != outbox.OutcomeLag {
		t.instruments.published.Add(ctx, int64(e.Count), t.with(keyOutcome.String(string(e.Outcome))))
	}
}
