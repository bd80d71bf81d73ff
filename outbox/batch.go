package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// settleEvery bounds how many messages are published again when the relay dies.
const settleEvery = time.Second

// publish publishes one wave after another. A wave has at most one message of each key,
// so that no message overtakes another that fails. It returns whether the broker and the
// queue could be reached.
func (b *batch) publish(ctx, run context.Context, entries []Entry) (ok bool) {
	ok = true
	for wave, rest := firstWave(entries); len(wave) > 0; wave, rest = firstWave(rest) {
		if ctx.Err() != nil || !ok || run.Err() != nil {
			rest = append(wave, rest...)
			b.giveBack(rest)
			break
		}
		var failed map[string]bool
		failed, ok = b.publishWave(ctx, run, wave)
		rest = b.without(rest, failed)
		if b.mixed {
			b.mixed, b.leaseAt = false, time.Now().Add(max(leaseEvery, time.Since(b.leasedAt)))
		}
		if time.Since(b.settledAt) >= settleEvery && !b.settle(ctx) {
			return false
		}
		if ok && !b.mixed && time.Now().After(b.leaseAt) && len(rest) > 0 && len(rest) < b.relay.limit {
			rest, ok = b.leaseMore(ctx, run, rest)
		}
	}
	return b.settle(ctx) && ok
}

// leaseEvery is how often, at most, more messages are leased while a batch is published. Messages
// of one key take as many waves, and would hold up those of other keys. These in turn take at most
// half of the time from them, however long the queue takes to lease them, and the broker to accept
// or to reject them.
const leaseEvery = 250 * time.Millisecond

// leaseMore adds messages to those that the batch holds, of other keys: the queue leases none of
// a key of which it holds others. The batch's verdicts are recorded first, so that more messages
// of their keys can be leased. It returns whether the queue could be reached. If not, the batch
// ends, and the next one begins when the queue is back.
func (b *batch) leaseMore(ctx, run context.Context, held []Entry) (all []Entry, ok bool) {
	b.relay.keepHouse(ctx)
	if !b.settle(ctx) {
		return held, false
	}
	if ctx.Err() != nil || run.Err() != nil {
		return held, true
	}
	b.leasedAt = time.Now()
	all, err := b.lease(ctx, held)
	b.relay.observeError(ctx, err)
	b.mixed = true
	return all, err == nil
}

// firstWave splits entries into a wave, which has the first entry of each key and those
// without a key, and the rest.
func firstWave(entries []Entry) (wave, rest []Entry) {
	seen := make(map[string]bool)
	for _, e := range entries {
		if e.Key != "" && seen[e.Key] {
			rest = append(rest, e)
			continue
		}
		seen[e.Key] = true
		wave = append(wave, e)
	}
	return wave, rest
}

// without returns to the queue the messages that must wait for one that failed.
func (b *batch) without(rest []Entry, failed map[string]bool) []Entry {
	if len(failed) == 0 {
		return rest
	}
	var others []Entry
	for _, e := range rest {
		if failed[e.Key] {
			b.giveBack([]Entry{e})
		} else {
			others = append(others, e)
		}
	}
	return others
}

func (b *batch) giveBack(entries []Entry) {
	for _, e := range entries {
		b.verdicts = append(b.verdicts, Verdict{Seq: e.Seq, State: StateWaiting, Attempts: e.Attempts, Error: e.Error})
	}
}

// publishWave publishes messages that need not wait for each other. It returns the keys
// of those that failed, and whether the broker could be reached.
func (b *batch) publishWave(ctx, run context.Context, wave []Entry) (failed map[string]bool, ok bool) {
	wave, failed = b.parkUnpublishable(ctx, wave)
	if len(wave) == 0 {
		return failed, true
	}
	messages := make([]Message, len(wave))
	for i := range wave {
		messages[i] = wave[i].Message
	}
	errs, acked := b.call(ctx, run, messages)
	if acked > 0 {
		b.relay.routeAt = time.Now()
	}
	if run.Err() == nil {
		b.relay.away.note(wave, errs)
	}
	var away, noRoute error
	postponed, whileAway, retryIn := 0, b.relay.cfg.whileAway(acked > 0), b.relay.retryIn()
	for i, e := range wave {
		if errs[i] == nil {
			b.verdicts = append(b.verdicts, Verdict{Seq: e.Seq, State: StatePublished, After: b.relay.cfg.Keep})
			continue
		}
		failed[e.Key] = true
		switch {
		case run.Err() != nil || errors.Is(errs[i], ErrUnavailable) && (acked > 0 || !b.relay.away.onlyTopic(e.Topic)):
			away = errs[i]
			postponed++
			b.postpone(e, errs[i], whileAway)
		case errors.Is(errs[i], ErrUnavailable) || errors.Is(errs[i], ErrNoRoute):
			noRoute = errs[i]
			postponed++
			b.postpone(e, errs[i], b.relay.withoutRoute(time.Since(e.CreatedAt)))
		default:
			b.fail(ctx, e, errs[i], retryIn)
		}
	}
	if away != nil {
		b.relay.routeAt = time.Now()
	}
	delete(failed, "")
	if err := cmp.Or(away, noRoute); err != nil && run.Err() == nil {
		b.relay.observe(ctx, Event{Outcome: OutcomeUnavailable, Count: postponed, Err: err})
	}
	return failed, acked > 0 || away == nil
}

var errOverdue = errors.New("the Publisher has not returned, although its context ended: another relay may publish its messages")

// call calls the Publisher. It returns an error, or nil, for each message, and the number of messages
// that were acknowledged. If the Publisher does not return, the lease is renewed for one more
// lease after the context ended, and then left to lapse. A late acknowledgment still
// counts for messages that no other relay has leased.
func (b *batch) call(ctx, run context.Context, messages []Message) (errs []error, acked int) {
	limited, cancel := context.WithTimeout(run, b.relay.cfg.Timeout)
	defer cancel()
	reported := make(chan struct{})
	overdue := time.AfterFunc(b.relay.cfg.Timeout+b.relay.cfg.Lease, func() {
		defer close(reported)
		b.end(errOverdue)
		b.relay.observe(ctx, Event{Outcome: OutcomeUnavailable, Count: len(messages), Err: errOverdue})
	})
	defer func() {
		if !overdue.Stop() {
			<-reported
		}
	}()
	errs, acked = acknowledged(len(messages), publishApart(limited, b.relay.publisher, messages))
	if limited.Err() != nil {
		errs = excuse(errs, acked)
	}
	return errs, acked
}

// parkUnpublishable parks the entries that no Append can have written in their present
// form. They are not published, because no attempt could succeed. It returns the
// others, and the keys of those that it parked.
func (b *batch) parkUnpublishable(ctx context.Context, wave []Entry) (others []Entry, parked map[string]bool) {
	others, parked = wave[:0], make(map[string]bool)
	for _, e := range wave {
		if err := e.unpublishable(); err != nil {
			parked[e.Key] = true
			b.park(ctx, e, err)
		} else {
			others = append(others, e)
		}
	}
	delete(parked, "")
	return others, parked
}

// unpublishable returns an error if the entry is corrupt, or holds a message that
// Prepare would have rejected.
func (e *Entry) unpublishable() error {
	if e.Corrupt {
		return errors.New(e.Error)
	}
	if err := e.check(); err != nil {
		return fmt.Errorf("the stored message cannot be published: %w", err)
	}
	return nil
}

func (b *batch) park(ctx context.Context, e Entry, err error) {
	e.Error = cut(err.Error())
	b.verdicts = append(b.verdicts, Verdict{Seq: e.Seq, State: StateParked, Attempts: e.Attempts, Error: e.Error})
	b.relay.observe(ctx, Event{Outcome: OutcomeParked, Count: 1, Entry: e, Err: err})
}

// postpone returns a message to the queue until later, without counting a failure.
func (b *batch) postpone(e Entry, err error, after time.Duration) {
	b.verdicts = append(b.verdicts, Verdict{Seq: e.Seq, State: StateWaiting, After: after, Attempts: e.Attempts, Error: cut(err.Error())})
}

// fail counts a failure of the message, which is then retried later or parked.
func (b *batch) fail(ctx context.Context, e Entry, err error, retryIn func(attempts int) time.Duration) {
	e.Attempts++
	if e.Attempts >= b.relay.cfg.MaxAttempts {
		b.park(ctx, e, err)
		return
	}
	e.Error = cut(err.Error())
	b.verdicts = append(b.verdicts, Verdict{Seq: e.Seq, State: StateWaiting, After: retryIn(e.Attempts), Attempts: e.Attempts, Error: e.Error})
	b.relay.observe(ctx, Event{Outcome: OutcomeFailed, Count: 1, Entry: e, Err: err})
}

// cut turns the text of an error into one that every database can store.
func cut(text string) string {
	text = text[:min(len(text), defaults.LongestErrorText)]
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}
