package onlyonce

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
)

// An Outcome is a decision about a request, or the end of an attempt.
type Outcome string

// These are the outcomes.
const (
	OutcomeExecuted    Outcome = "executed"    // an attempt completed, or a first attempt released the command: Record.State is then empty
	OutcomeReplayed    Outcome = "replayed"    // the stored result or a stored failure was replayed
	OutcomeMismatch    Outcome = "mismatch"    // rejected: the key was used for a different request
	OutcomeKeyExpired  Outcome = "key_expired" // rejected: the command ended, and its result is not kept any more
	OutcomeInFlight    Outcome = "in_flight"   // rejected: another attempt is running
	OutcomeWaited      Outcome = "waited"      // a caller waited for another attempt; its own outcome follows
	OutcomeFailed      Outcome = "failed"      // an attempt failed, or released a command at which an earlier one had failed
	OutcomeUnknown     Outcome = "unknown"     // an attempt ended with an unknown outcome, or released a command that had one
	OutcomeHeld        Outcome = "held"        // rejected: the outcome of an earlier attempt is unknown, and a person or Config.Reconcile has yet to find out
	OutcomeTakenOver   Outcome = "taken_over"  // an attempt took over from one whose outcome is unknown
	OutcomeLost        Outcome = "lost"        // an attempt lost its lease to another
	OutcomeUnrecorded  Outcome = "unrecorded"  // the command ran, but its result could not be stored
	OutcomePurged      Outcome = "purged"      // expired records and results were deleted
	OutcomeCorrupt     Outcome = "corrupt"     // a record could not be read
	OutcomeUnavailable Outcome = "unavailable" // the store could not be reached, or could not execute the claim: nothing ran, unless the integration then ran it unprotected
)

// An Event describes one decision to an Observer.
type Event struct {
	Outcome     Outcome
	Record      Record        // as it stands after the decision; empty for OutcomePurged; without a key, only an operation; not to be modified
	Fingerprint []byte        // the fingerprint of the caller's request
	Duration    time.Duration // since the caller's request began, or since the purge began
	Purged      int           // how many records and results were deleted
	Err         error         // the error, if there was one
}

// An Observer is called once for every decision, on the goroutine that made it
// and outside any lock, after the decision has taken effect. The context is the
// caller's. An Observer must not block: the caller waits for it, and no lease
// is renewed meanwhile. No other caller waits. A panic in an Observer changes
// nothing: it is recovered and logged with its stack by slog's default logger.
type Observer func(context.Context, Event)

// DiscardEvents is an Observer that does nothing. A Config with it logs nothing.
func DiscardEvents(context.Context, Event) {}

// Tee returns an Observer that calls each of the observers, in their order:
//
//	onlyonce.Tee(metrics.Observe, onlyonce.SlogObserver(slog.Default(), nil))
//
// It panics if one of them is nil.
func Tee(observers ...Observer) Observer {
	observers = slices.Clone(observers)
	for _, o := range observers {
		need("Tee", o != nil, "Observers: leave out those that you do not have")
	}
	return func(ctx context.Context, e Event) {
		for _, o := range observers {
			o(ctx, e)
		}
	}
}

// Observe passes an event to the Guard's Observer. Without one, it logs what went
// wrong: see Config.Observer. It is for integrations that make decisions of their own.
func (g *Guard) Observe(ctx context.Context, e Event) {
	if g.cfg.Observer == nil {
		if e.Outcome.wentWrong(e.Err) && !e.released() {
			e.log(ctx, slog.Default(), hashedKey)
		}
		return
	}
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "onlyonce: the observer panicked", "event", e.logName(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	g.cfg.Observer(ctx, e)
}

// wentWrong reports whether an event with this outcome and error is logged without an
// Observer. Successes, replays and the mistakes of callers are not. It is called for
// every decision, before the event is made.
func (o Outcome) wentWrong(err error) bool {
	switch o {
	case OutcomeFailed, OutcomeUnknown, OutcomeHeld, OutcomeTakenOver, OutcomeLost, OutcomeUnrecorded, OutcomeCorrupt, OutcomeUnavailable:
		return true
	case OutcomeReplayed, OutcomeMismatch, OutcomeKeyExpired, OutcomeInFlight, OutcomeWaited:
		return false
	}
	return err != nil
}

// released reports whether an attempt released the command. A release is not an
// error, whatever its reason.
func (e Event) released() bool { return e.Outcome == OutcomeExecuted && e.Record.State == "" }

// SlogObserver returns an Observer that logs events. The attributes are event
// (idempotency_hit, idempotency_conflict, idempotency_executed,
// idempotency_released …), duration_ms, operation, record_id (as showKey's
// default), idempotency_key, attempt, ref if the record has one, error if
// something went wrong, and others that depend on the outcome.
//
// showKey returns the value of idempotency_key. Nil means the first eight bytes
// of ID.Hash in hexadecimal, which is also the beginning of the record's id in
// a SQL store. Anyone who knows a key and its request can read the stored
// response, so keys should not be in logs. To log the key itself, pass
//
//	func(id onlyonce.ID) string { return id.Key }
//
// Tenants, bodies and headers are not logged.
func SlogObserver(log *slog.Logger, showKey func(ID) string) Observer {
	need("SlogObserver", log != nil, "a Logger: pass slog.Default() or another")
	if showKey == nil {
		showKey = hashedKey
	}
	return func(ctx context.Context, e Event) { e.log(ctx, log, showKey) }
}

func (e Event) log(ctx context.Context, log *slog.Logger, showKey func(ID) string) {
	level, what := logLevels[e.Outcome], string(e.Outcome)
	switch {
	case e.released():
		level, what = slog.LevelInfo, "released"
	case e.Err != nil:
		level = max(level, slog.LevelWarn)
	}
	if log.Enabled(ctx, level) {
		log.LogAttrs(ctx, level, "idempotency "+what, e.attrs(showKey)...)
	}
}

var logLevels = map[Outcome]slog.Level{
	OutcomeExecuted:    slog.LevelDebug,
	OutcomeWaited:      slog.LevelDebug,
	OutcomeMismatch:    slog.LevelWarn,
	OutcomeKeyExpired:  slog.LevelWarn,
	OutcomeFailed:      slog.LevelWarn,
	OutcomeTakenOver:   slog.LevelWarn,
	OutcomeHeld:        slog.LevelWarn,
	OutcomeUnknown:     slog.LevelError,
	OutcomeLost:        slog.LevelError,
	OutcomeUnrecorded:  slog.LevelError,
	OutcomeCorrupt:     slog.LevelError,
	OutcomeUnavailable: slog.LevelError,
}

func hashedKey(id ID) string {
	return id.HexHash()[:16]
}

func (e Event) attrs(showKey func(ID) string) []slog.Attr {
	at := []slog.Attr{slog.String("event", e.logName()), slog.Float64("duration_ms", float64(e.Duration.Microseconds())/1000)}
	switch {
	case e.Outcome == OutcomePurged:
		at = append(at, slog.Int("purged", e.Purged))
	case e.Record.ID.Key == "":
		at = append(at, slog.String("operation", e.Record.ID.Operation))
	default:
		at = append(at,
			slog.String("operation", e.Record.ID.Operation),
			slog.String("record_id", hashedKey(e.Record.ID)),
			slog.String("idempotency_key", showKey(e.Record.ID)),
			slog.Int("attempt", e.Record.Attempt))
	}
	if ref := e.Record.Result.Ref; ref != "" {
		at = append(at, slog.String("ref", ref))
	}
	switch e.Outcome {
	case OutcomeReplayed:
		at = append(at,
			slog.Int("status_code", e.Record.Result.Status),
			slog.Int("response_size", len(e.Record.Result.Body)),
			slog.Time("cached_at", e.Record.SettledAt))
	case OutcomeMismatch:
		at = append(at,
			slog.String("existing_hash", hex.EncodeToString(e.Record.Fingerprint)),
			slog.String("new_hash", hex.EncodeToString(e.Fingerprint)))
	}
	switch {
	case e.Err != nil:
		at = append(at, slog.Any("error", e.Err))
	case e.Record.Error == "":
	case e.Outcome == OutcomeFailed, e.Outcome == OutcomeUnknown, e.Outcome == OutcomeHeld:
		at = append(at, slog.String("error", e.Record.Error))
	}
	return at
}

func (e Event) logName() string {
	switch e.Outcome {
	case OutcomeReplayed:
		return "idempotency_hit"
	case OutcomeMismatch:
		return "idempotency_conflict"
	}
	if e.released() {
		return "idempotency_released"
	}
	return "idempotency_" + string(e.Outcome)
}
