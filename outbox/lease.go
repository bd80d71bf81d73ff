package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
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

	mu      sync.Mutex
	held    map[int64]bool // the numbers of the messages that are leased and whose verdicts are not recorded
	leasing time.Time      // when the call began that leases messages; zero: there is none
	until   time.Time      // when the lease ends, at the earliest
}

func (r *Relay) newBatch() *batch {
	b := &batch{relay: r, owner: newOwner(), end: func(error) {}, began: time.Now(), settledAt: time.Now(), mixed: true, held: make(map[int64]bool)}
	b.leasedAt, b.until = b.began, b.began.Add(r.cfg.Lease)
	return b
}

// newOwner returns a random owner token for one lease.
func newOwner() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return string(b[:])
}

// errGrace is the cause of the end of publishing when the relay ends.
var errGrace = errors.New("the relay is stopping, and the broker has not responded in time")

// lease leases messages for the batch, and returns them after those that it holds. It does not
// end with ctx, because no relay could publish them until the lease lapses.
func (b *batch) lease(ctx context.Context, held []Entry, except ...string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.relay.cfg.Timeout)
	defer cancel()
	b.beginLeasing()
	more, err := b.relay.queue.Lease(ctx, b.owner, b.relay.cfg.Lease, b.relay.limit-len(held), except...)
	b.endLeasing(more)
	held = append(held, more...)
	b.relay.adapt(held, err)
	return held, err
}

// firstBatch is the largest number of messages in a relay's first batch, when it does not know
// yet how large they are.
const firstBatch = 16

// adapt limits the messages that are held so that they fit into memory, and their lease into
// Config.Timeout, which a backlog of large messages would exceed every time. A queue returns no
// more messages than fit, but has read those that it does not return in vain.
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

// extend renews the lease at once if leasing took so long that publishing could not begin, or only for
// a moment, before the lease might end. It returns an error if there is no such lease.
func (b *batch) extend(ctx context.Context) error {
	r := b.relay
	if b.left() >= r.cfg.Lease/4 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Timeout)
	defer cancel()
	took, sent := time.Since(b.began), time.Now()
	seqs, since := b.renewable()
	err := r.queue.Renew(ctx, b.owner, r.cfg.Lease, seqs...)
	if err == nil {
		b.renewed(since)
	}
	if err == nil && b.left() > 0 {
		return nil
	}
	r.limit = max(r.limit/4, 1)
	return errors.Join(fmt.Errorf("the queue took %v to lease messages and %v to renew the lease of %v: a longer Config.Lease allows for that", took, time.Since(sent), r.cfg.Lease), err)
}

func (b *batch) beginLeasing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leasing = time.Now()
}

func (b *batch) endLeasing(leased []Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leasing = time.Time{}
	for i := range leased {
		b.held[leased[i].Seq] = true
	}
}

// recorded notes that verdicts are recorded, or can't be.
func (b *batch) recorded(verdicts []Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range verdicts {
		delete(b.held, v.Seq)
	}
}

// renewable returns the numbers of the messages whose lease is to be renewed, and since when none of the
// batch's leases has begun. Messages that are just being leased are not among them.
func (b *batch) renewable() (seqs []int64, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since = b.leasing; since.IsZero() {
		since = time.Now()
	}
	return slices.Sorted(maps.Keys(b.held)), since
}

// holdsAny reports whether the verdict on one of the messages is not recorded yet.
func (b *batch) holdsAny(seqs []int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(seqs, func(seq int64) bool { return b.held[seq] })
}

// renewed notes a renewal, after which no lease began before a time.
func (b *batch) renewed(since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = since.Add(b.relay.cfg.Lease)
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
		seqs, since := b.renewable()
		var err error
		if len(seqs) > 0 {
			err = b.relay.queue.Renew(run, b.owner, lease, seqs...)
		}
		late.Stop()
		switch {
		case errors.Is(err, ErrLost) && b.holdsAny(seqs):
			cancel(ErrLost)
			return
		case errors.Is(err, ErrLost): // all of them were settled meanwhile, and the others were leased later
			next = 0
			b.renewed(since)
		case err != nil:
			next = lease / 12
		default:
			next = lease / 3
			b.renewed(since)
		}
	}
}

// left returns how long the batch may still be published without another renewal.
func (b *batch) left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.until) - b.relay.cfg.Lease/4
}
