package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
)

// A Result is the outcome of a finished message.
type Result[T any] struct {
	Value    T     // the handler's value, from this delivery or the first one
	Replayed bool  // an earlier delivery was handled
	Attempt  int   // the number of the attempt; the first is 1
	Poisoned error // why the message went to Config.Poison instead; nil: it was handled
}

// Handle runs fn once for the message and gives every later delivery the result
// of that run, which is stored as JSON. If the error is nil, the message is
// finished: acknowledge it. Otherwise, do not acknowledge it, so that it is
// delivered again. The errors are:
//
//   - onlyonce.InFlightError: another consumer works on it, for at most
//     RetryAfter.
//   - onlyonce.ErrUnavailable: the store could not be reached.
//   - onlyonce.ErrLost: fn ran, but another consumer has taken over.
//   - fn's own error: fn failed. After Config.MaxAttempts failures, or after one that
//     is onlyonce.Final, fn does not run again, the message goes to Config.Poison,
//     and the error is nil.
//   - onlyonce.ErrFailed: it failed finally before, and there is no Config.Poison.
//
// A message with the ID of an earlier message and a different payload goes to
// Config.Poison at once. Without Config.Poison, the error is
// onlyonce.ErrMismatch. A message that was handled before and whose stored result
// can't be decoded as a T, because it is damaged, because T has changed, or because it
// was too large for the store, goes to Config.Poison as well. Without Config.Poison, the
// error is onlyonce.ErrCorrupt.
//
// fn's context is like that of onlyonce.Do: it ends when the lease is lost, not
// when ctx ends. A panic in fn continues, and the attempt counts.
func Handle[T any](ctx context.Context, in *Inbox, m Message, fn func(context.Context) (T, error)) (Result[T], error) {
	h := handling[T]{inbox: in, message: m, request: in.request(m)}
	return h.run(ctx, func(req onlyonce.Request) (onlyonce.Answer[T], error) {
		return onlyonce.Do(ctx, in.guard, req, func(ctx context.Context) (T, error) {
			return h.attempt(ctx, func() (T, error) { return fn(ctx) })
		})
	})
}

// HandleTx is Handle for a handler whose rows are in the store's own database:
// its rows and the record that the message was handled are committed together,
// or neither is. If the handler fails, panics, or ends its goroutine, or if the database
// rejects its transaction, or PostgreSQL ends it because it was idle for too long, that is
// recorded after the rollback. An attempt whose transaction does not begin or commit because the
// database is unavailable is not counted, but an error of the database that the handler returns is.
// The handler must neither commit nor roll back the transaction: that counts as a failure too, and
// its error is onlyonce.ErrUnknown.
func HandleTx[T, TX any](ctx context.Context, in *TxInbox[TX], m Message, fn func(context.Context, TX) (T, error)) (Result[T], error) {
	h := handling[T]{inbox: in.Inbox, message: m, request: in.request(m)}
	defer h.countExit(ctx)
	return h.run(ctx, func(req onlyonce.Request) (onlyonce.Answer[T], error) {
		answer, err := onlyonce.DoTx(ctx, in.guard, req, func(ctx context.Context, tx TX) (T, error) {
			return h.attempt(ctx, func() (value T, err error) {
				h.inHandler = true
				defer h.catch(&err)
				if value, err = fn(ctx, tx); err != nil {
					_ = onlyonce.Failure(err) // calls its methods, which may panic, if it is a nil pointer: this counts as well
				}
				h.inHandler = false
				return value, err
			})
		})
		rejected := rejectedtx.In(err)
		switch {
		case h.number == 0 || h.failed != nil:
		case rejected != nil:
			return h.countUncommitted(ctx, err, errors.New(rejected.Error())) // without an error that says that the database is away
		case errors.Is(err, onlyonce.ErrUnknown) && !errors.Is(err, onlyonce.ErrInDoubt): // the handler ended its transaction
			return h.countUncommitted(ctx, err, err)
		}
		return answer, err
	})
}

// A handling is one delivery on its way through a handler.
type handling[T any] struct {
	inbox     *Inbox
	message   Message
	request   onlyonce.Request // created before a handler can change the payload
	number    int              // the number of the attempt; 0: there was none
	failed    error            // the handler's error
	last      bool             // no other attempt follows failed
	final     bool             // failed was final, although there may have been few attempts
	inHandler bool             // the handler of HandleTx has begun, and has neither returned nor panicked
	panicked  any
}

var errExhausted = errors.New("every attempt failed, or ended without a result")

// attempt runs the handler, unless it has failed too often before.
func (h *handling[T]) attempt(ctx context.Context, fn func() (T, error)) (value T, err error) {
	h.number, h.failed, h.last, h.final, h.panicked = onlyonce.Current(ctx).Number(), nil, false, false, nil
	before := onlyonce.Current(ctx).Record().Error
	if text, final := strings.CutPrefix(before, finally); final && h.inbox.cfg.Poison != nil {
		h.failed, h.last, h.final = errors.New(text), true, true
		return value, errors.New(before)
	}
	if h.inbox.exhausted(h.number) {
		h.failed, h.last = exhausted(before), true
		return value, h.failed
	}
	value, err = fn()
	if h.failed = err; err == nil || h.inbox.cfg.Poison == nil {
		return value, notFinal(err)
	}
	h.last = h.number >= h.inbox.cfg.MaxAttempts
	if onlyonce.Failure(err).Final {
		h.last, h.final = true, true
		return value, errors.New(finally + err.Error())
	}
	return value, notFinal(err)
}

// finally begins the text of a failure that becomes final once Poison has accepted the
// message. The next attempt finds it in the record, and does not run the handler.
const finally = "inbox: final, to be poisoned: "

// notFinal returns an error whose text in the record does not say that the failure is final.
func notFinal(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), finally) {
		return fmt.Errorf("inbox: %w", err)
	}
	return err
}

// exhausted returns errExhausted with the text of the last error.
func exhausted(last string) error {
	if last == "" || strings.HasPrefix(last, errExhausted.Error()) {
		return errors.New(cmp.Or(last, errExhausted.Error()))
	}
	return fmt.Errorf("%w; the last: %s", errExhausted, last)
}

// catch turns a panic into an error, so that it is recorded.
func (h *handling[T]) catch(err *error) {
	if p := recover(); p != nil {
		h.inHandler, h.panicked = false, p
		*err = fmt.Errorf("panic: %v", p)
	}
}

var errExited = errors.New("the attempt's goroutine ended")

// countExit counts the attempt of a handler that ended its goroutine, which was rolled
// back. It is deferred, because nothing else runs after that.
func (h *handling[T]) countExit(ctx context.Context) {
	if !h.inHandler {
		return
	}
	_, _ = onlyonce.Do(context.WithoutCancel(ctx), h.inbox.guard, h.request, func(context.Context) (T, error) {
		var none T
		return none, errExited
	}) // the Observer gets the error
}

// countUncommitted counts, as a failure, the attempt of a handler that returned no error, but whose
// transaction was not committed with its record because of cause: that may happen every time, for
// instance by a deferred constraint. The attempt is not counted if the database was away at the
// commit, or is away now.
func (h *handling[T]) countUncommitted(ctx context.Context, cause, failure error) (onlyonce.Answer[T], error) {
	answer, err := onlyonce.Do(context.WithoutCancel(ctx), h.inbox.guard, h.request, func(ctx context.Context) (T, error) {
		return h.attempt(ctx, func() (none T, err error) { return none, failure })
	})
	if err != nil && h.failed == nil {
		return answer, cause
	}
	return answer, err
}

func (h *handling[T]) run(ctx context.Context, do func(onlyonce.Request) (onlyonce.Answer[T], error)) (Result[T], error) {
	if err := h.message.check(); err != nil {
		var result Result[T]
		err = h.reject(ctx, err, &result)
		return result, err
	}
	answer, err := do(h.request)
	result := Result[T]{Value: answer.Value, Replayed: answer.Replayed, Attempt: answer.Attempt}
	switch {
	case err == nil:
		return result, nil
	case h.last:
		err = h.poison(ctx, h.failed, &result)
	case h.failed != nil: // which may wrap any of the errors below
	case errors.Is(err, onlyonce.ErrFailed) && answer.Ref == refPoisoned && h.inbox.cfg.Poison != nil:
		result.Poisoned = err
		return result, nil
	case errors.Is(err, onlyonce.ErrFailed) && h.inbox.cfg.Poison != nil, errors.Is(err, onlyonce.ErrMismatch), errors.Is(err, onlyonce.ErrCorrupt):
		err = h.reject(ctx, err, &result)
	}
	if h.panicked != nil {
		panic(h.panicked)
	}
	if err != nil {
		return Result[T]{}, err
	}
	return result, nil
}

// refPoisoned is the Ref of a record whose message Config.Poison has accepted. A final
// failure without it comes from a consumer that had no Poison, or from a person.
const refPoisoned = "poisoned"

// reject passes to Config.Poison a message that has no ID, or the ID of another
// message, that failed for good when there was no Poison, or whose result cannot be
// decoded. It changes no record.
func (h *handling[T]) reject(ctx context.Context, cause error, result *Result[T]) error {
	if h.inbox.cfg.Poison == nil {
		return fmt.Errorf("inbox: the message %q can't be handled exactly once: %w", h.message.ID, cause)
	}
	if err := h.inbox.cfg.Poison(ctx, h.message, cause); err != nil {
		return fmt.Errorf("inbox: poison: %w", errors.Join(err, cause))
	}
	result.Poisoned = cause
	return nil
}

// keep calls Config.Poison. It returns a panic as an error, so that the record stays
// that of a failure, and run continues it.
func (h *handling[T]) keep(ctx context.Context, cause error) (err error) {
	defer h.catch(&err)
	return h.inbox.cfg.Poison(ctx, h.message, cause)
}

// poison passes the message to Config.Poison and then makes its failure final. If the
// process dies in between, the next delivery does both again.
func (h *handling[T]) poison(ctx context.Context, cause error, result *Result[T]) error {
	var kept error
	asked, text := false, errors.New(cause.Error()) // without the errors that cause may wrap
	failure := notFinal(text)
	if h.final {
		failure = errors.New(finally + text.Error())
	}
	answer, err := onlyonce.Do(ctx, h.inbox.guard, h.request, func(ctx context.Context) (json.RawMessage, error) {
		asked = true
		returned := false
		defer func() {
			if !returned { // Poison has ended its goroutine: the record stays that of the failure
				_ = onlyonce.Current(ctx).Settle(ctx, onlyonce.Failure(failure)) // observed
			}
		}()
		kept = h.keep(ctx, cause)
		if returned = true; kept != nil {
			return nil, failure
		}
		onlyonce.Current(ctx).SetRef(refPoisoned)
		return nil, onlyonce.Final(text)
	})
	switch {
	case !asked && errors.Is(err, onlyonce.ErrFailed) && answer.Ref != refPoisoned:
		return h.reject(ctx, cause, result)
	case kept != nil:
		return fmt.Errorf("inbox: poison: %w", errors.Join(kept, cause))
	case err == nil && answer.Replayed: // another consumer has handled the message meanwhile
		return cause
	case !asked && !errors.Is(err, onlyonce.ErrFailed), errors.Is(err, onlyonce.ErrLost):
		return fmt.Errorf("inbox: poison: %w", errors.Join(err, cause))
	}
	result.Attempt, result.Poisoned = h.number, cause
	return nil
}
