package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A batch holds the messages that a relay has leased and publishes.
type batch struct {
	relay *Relay
	owner string
	began time.Time
	end   context.CancelCauseFunc // ends publishing and renewing

	verdicts  []Verdict // not yet settled
	settledAt time.Time
	mixed     bool      // the next wave may have messages that were leased after the last one
	leasedAt  time.Time // when leasing them began
	leaseAt   time.Time // when more messages may be leased

	mu    sync.Mutex
	until time.Time // when the lease ends, at the earliest
}

// errGrace is the cause of the end of publishing when the relay ends.
var errGrace = errors.New("the relay is stopping, and the broker has not responded in time")

// publishBatch leases a batch and publishes it. It returns whether there was one,
// and whether the queue and the broker could be reached.
func (r *Relay) publishBatch(ctx context.Context) (found, ok bool) {
	b := r.newBatch()
	entries, err := b.lease(ctx, nil)
	if len(entries) == 0 || err != nil {
		r.routeAt = time.Now()
	}
	if err != nil {
		r.observe(ctx, Event{Outcome: OutcomeTrouble, Err: err})
		return false, false
	}
	if len(entries) == 0 {
		return false, true
	}
	run, stop := b.context(ctx)
	defer stop()
	return true, b.publish(ctx, run, entries)
}

func (r *Relay) newBatch() *batch {
	b := &batch{relay: r, owner: newOwner(), began: time.Now(), settledAt: time.Now(), mixed: true}
	b.leasedAt, b.until = b.began, b.began.Add(r.cfg.Lease)
	return b
}

// publishElsewhere publishes a batch of other topics than those of which the broker has taken
// nothing: if only these are away, the messages of theirs must not hold up the others. It returns
// whether the broker took some. The queue may have to search long for them: this takes it at most
// a tenth of the time.
func (r *Relay) publishElsewhere(ctx context.Context) bool {
	began := time.Now()
	if !r.away.inDoubt() || began.Before(r.elsewhereAt) || ctx.Err() != nil {
		return false
	}
	b := r.newBatch()
	entries, err := b.lease(ctx, nil, r.away.topics()...)
	r.elsewhereAt = time.Now().Add(9 * time.Since(began))
	r.observeError(ctx, err)
	if len(entries) == 0 || err != nil {
		return false
	}
	run, stop := b.context(ctx)
	defer stop()
	return b.publish(ctx, run, entries)
}

// firstBatch is the largest number of messages in a relay's first batch, when it does not know
// yet how large they are.
const firstBatch = 16

// adapt limits the messages that are held so that they fit into memory, and their lease into
// Config.Timeout, which a backlog of large messages would exceed every time. A queue returns no
// more than fits, but reads for nothing what it does not return.
func (r *Relay) adapt(held []Entry, err error) {
	size := int64(0)
	for i := range held {
		size += int64(len(held[i].Payload))
	}
	switch n := int64(len(held)); {
	case err != nil: // the batch may have been too large to be leased in time
		r.limit = max(r.limit/4, 1)
	case size > MaxLeaseBytes, size > MaxLeaseBytes/2 && len(held) < r.limit:
		r.limit = int(max(n*MaxLeaseBytes/size, 1))
	case len(held) >= r.limit && size <= MaxLeaseBytes/2:
		r.limit = min(2*r.limit, r.cfg.Batch)
	}
}

// newOwner returns a random owner token for one lease.
func newOwner() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return string(b[:])
}

// lease leases messages for the batch, and returns them after those that it holds. It does not
// end with ctx, because no relay could publish them until the lease lapses.
func (b *batch) lease(ctx context.Context, held []Entry, except ...string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.relay.cfg.Timeout)
	defer cancel()
	more, err := b.relay.queue.Lease(ctx, b.owner, b.relay.cfg.Lease, b.relay.limit-len(held), except...)
	held = append(held, more...)
	b.relay.adapt(held, err)
	return held, err
}

// context returns the context in which the batch is published: it ends with the
// lease, which is renewed meanwhile, and a while after ctx.
func (b *batch) context(ctx context.Context) (run context.Context, stop func()) {
	run, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	b.end = cancel
	ended := context.AfterFunc(ctx, func() {
		grace := time.NewTimer(b.relay.cfg.Grace)
		defer grace.Stop()
		select {
		case <-grace.C:
			cancel(errGrace)
		case <-run.Done():
		}
	})
	var renewing sync.WaitGroup
	renewing.Go(func() { b.renew(run, cancel) })
	return run, func() {
		ended()
		cancel(nil)
		renewing.Wait()
	}
}

// renew renews the lease until run ends. It ends run if no renewal succeeds in time.
func (b *batch) renew(run context.Context, cancel context.CancelCauseFunc) {
	lease := b.relay.cfg.Lease
	next := lease / 3
	for {
		late := time.AfterFunc(b.left(), func() { cancel(ErrLost) })
		select {
		case <-run.Done():
			late.Stop()
			return
		case <-time.After(next):
		}
		sent := time.Now()
		err := b.relay.queue.Renew(run, b.owner, lease)
		late.Stop()
		switch {
		case errors.Is(err, ErrLost):
			cancel(ErrLost)
			return
		case err != nil:
			next = lease / 12
		default:
			next = lease / 3
			b.mu.Lock()
			b.until = sent.Add(lease)
			b.mu.Unlock()
		}
	}
}

// left returns how long the batch may still be published without another renewal.
func (b *batch) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until) - b.relay.cfg.Lease/4
}

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
// has to end: it would go on renewing the lease on messages that it may have leased without
// knowing it.
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
	errs, acked := acknowledged(len(wave), b.call(ctx, run, messages))
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

// call calls the Publisher. If it does not return, the lease is renewed for one more
// lease after the context ended, and then left to lapse. A late acknowledgment still
// counts for messages that no other relay has leased.
func (b *batch) call(ctx, run context.Context, messages []Message) []error {
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
	return publishApart(limited, b.relay.publisher, messages)
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

// whileAway returns how long a message waits for an unreachable broker: Config.Backoff if
// the broker accepted other messages, and otherwise 0, because the relay itself pauses.
func (c *Config) whileAway(tookOthers bool) time.Duration {
	if !tookOthers {
		return 0
	}
	return jitter(c.Backoff)
}

// withoutRoute returns how long a message of the given age waits if the broker has no
// route for it. Later messages are leased meanwhile. It has no jitter, so that messages that
// were leased together are leased together again, and is in steps, so that many have the same verdict.
func (r *Relay) withoutRoute(age time.Duration) time.Duration {
	step := min(r.cfg.Backoff, r.cfg.MaxBackoff)
	return r.behindOthers(min(max(age/4, step), r.cfg.MaxBackoff)).Truncate(step)
}

// behindOthers returns how long a message waits that was not published: the given time. If
// there are so many such messages that the relay has published nothing for longer than that,
// it waits as long as this has lasted, so that it is not due again before the relay has
// reached the others.
func (r *Relay) behindOthers(wait time.Duration) time.Duration {
	return min(max(wait, time.Since(r.routeAt)), MaxHeld)
}

// retryIn returns how long messages of a wave wait after so many failures. Those that have failed
// equally often wait equally long, so that many have the same verdict.
func (r *Relay) retryIn() func(attempts int) time.Duration {
	waits := make(map[int]time.Duration)
	return func(attempts int) time.Duration {
		if _, ok := waits[attempts]; !ok {
			waits[attempts] = r.behindOthers(jitter(r.cfg.backoff(attempts)))
		}
		return waits[attempts]
	}
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

// backoff returns how long a message waits after the given number of failures.
func (c *Config) backoff(attempts int) time.Duration {
	d := c.Backoff
	for range attempts - 1 {
		if d *= 2; d >= c.MaxBackoff {
			return c.MaxBackoff
		}
	}
	return min(d, c.MaxBackoff)
}

// cut turns the text of an error into one that every database can store.
func cut(text string) string {
	text = text[:min(len(text), defaults.LongestErrorText)]
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}
