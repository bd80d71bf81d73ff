package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// An Outcome is an action of a relay, or an event that it encountered.
type Outcome string

// These are the outcomes.
const (
	OutcomePublished   Outcome = "published"   // messages were acknowledged and marked as published
	OutcomeFailed      Outcome = "failed"      // a message was rejected and is retried later
	OutcomeParked      Outcome = "parked"      // a message failed too often or can't be published, and waits for someone to requeue or discard it
	OutcomeUnavailable Outcome = "unavailable" // the broker could not be reached, or has no route for messages; they wait
	OutcomeLost        Outcome = "lost"        // the lease was lost; some messages may be published twice
	OutcomeTrouble     Outcome = "trouble"     // the queue could not be read or written; the relay retries
	OutcomeLag         Outcome = "lag"         // the backlog, reported every Config.LagEvery, or less often
	OutcomePurged      Outcome = "purged"      // published messages whose keep time had ended were deleted
)

// An Event describes an Outcome to an Observer.
type Event struct {
	Outcome  Outcome
	Count    int           // of messages
	Entry    Entry         // the message, if it failed or was parked; not to be modified
	Lag      Lag           // with OutcomeLag
	Duration time.Duration // for OutcomePublished: the time since the messages were leased
	Err      error         // the error, if there was one
}

// An Observer is called for the events of a relay, one at a time. It must not
// block, because the relay waits for it. A panic of it changes nothing: it is
// recovered and logged with its stack by slog's default logger.
type Observer func(context.Context, Event)

var logLevels = map[Outcome]slog.Level{
	OutcomePublished:   slog.LevelDebug,
	OutcomeLag:         slog.LevelDebug,
	OutcomePurged:      slog.LevelDebug,
	OutcomeFailed:      slog.LevelWarn,
	OutcomeUnavailable: slog.LevelWarn,
	OutcomeLost:        slog.LevelError,
	OutcomeParked:      slog.LevelError,
	OutcomeTrouble:     slog.LevelError,
}

// SlogObserver returns an Observer that logs events. The attributes are event
// (outbox_published, outbox_failed …), count and others that depend on the
// outcome. Payloads, headers and tenants are not logged.
func SlogObserver(log *slog.Logger) Observer {
	return func(ctx context.Context, e Event) {
		if level := logLevels[e.Outcome]; log.Enabled(ctx, level) {
			log.LogAttrs(ctx, level, "outbox "+string(e.Outcome), e.attrs()...)
		}
	}
}

func (e Event) logName() string { return "outbox_" + string(e.Outcome) }

func (e Event) attrs() []slog.Attr {
	at := []slog.Attr{slog.String("event", e.logName()), slog.Int("count", e.Count)}
	switch e.Outcome {
	case OutcomeFailed, OutcomeParked:
		at = append(at,
			slog.String("message_id", e.Entry.ID),
			slog.String("topic", e.Entry.Topic),
			slog.Int64("seq", e.Entry.Seq),
			slog.Int("attempts", e.Entry.Attempts))
	case OutcomeLag:
		at = append(at, slog.Duration("oldest", e.Lag.Oldest), slog.Int("parked", e.Lag.Parked))
	case OutcomePublished:
		at = append(at, slog.Float64("duration_ms", float64(e.Duration.Microseconds())/1000))
	}
	if e.Err != nil {
		at = append(at, slog.Any("error", e.Err))
	}
	return at
}

func (r *Relay) observe(ctx context.Context, e Event) {
	if r.cfg.Observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "outbox: the observer panicked", "event", e.logName(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	r.cfg.Observer(ctx, e)
}

// observeError reports an error of the queue, unless the end of the relay caused it.
func (r *Relay) observeError(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		r.observe(ctx, Event{Outcome: OutcomeTrouble, Err: err})
	}
}
