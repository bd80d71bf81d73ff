package pgxstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/messages"
)

// An Outbox is the queue of messages in the store's database. Its relays are notified
// of messages that other processes append.
type Outbox struct {
	queue    *messages.Queue
	text     map[string]string // the statements of the store
	closable *engine.Closable
	leave    func(error) // of the Store
	listener *listener
	listen   sync.Once
	news     chan struct{}
}

var (
	_ outbox.Waker   = (*Outbox)(nil)
	_ outbox.Auditor = (*Outbox)(nil)
)

func newOutbox(s *Store) *Outbox {
	m := s.maintenance
	return &Outbox{queue: messages.New(m), text: m.text, closable: m.Closable, leave: s.leave, listener: newListener(s.pool, outboxChannel, outboxLock), news: make(chan struct{}, 1)}
}

// Outbox returns the queue of messages in the store's database, always the same.
func (s *Store) Outbox() *Outbox { return s.outbox }

// allMessages is the one name that relays listen to. Like every name it has to be
// channelSize bytes long.
const allMessages = "every message..."

// Append adds messages to the queue in tx, in one round trip: they are in the
// queue once tx is committed, and nothing is left of them if it is rolled back.
// The commit wakes any relay, in this process or another, that has been
// listening for at least one second.
//
// tx may be the transaction that DoTx, RunTx or httponce.WrapTx passed to its
// function, or one that the caller opened on the store's database.
func (o *Outbox) Append(ctx context.Context, tx pgx.Tx, list ...outbox.Message) error {
	if err := o.closable.Check(); err != nil {
		return wrap("append to the outbox", err)
	}
	var b pgx.Batch
	for _, m := range list {
		message, err := messages.Prepare(ctx, m)
		if err != nil {
			return err
		}
		b.Queue(o.text["outbox append"], engine.Values(message.Append())...)
	}
	appended := b.Len()
	if appended == 0 {
		return nil
	}
	notification := o.listener.notify(allMessages)
	notification.queue(&b, o.text)
	results := tx.SendBatch(ctx, &b)
	for range appended {
		if _, err := results.Exec(); err != nil {
			return wrap("append to the outbox", errors.Join(err, results.Close()))
		}
	}
	return wrap("append to the outbox", errors.Join(notification.read(results), results.Close()))
}

// Wait returns when messages have, or may have, been appended since it last
// returned, by this process or another. The store listens from the first call
// on.
func (o *Outbox) Wait(ctx context.Context) error {
	if err := o.closable.Check(); err != nil {
		return wrap("wait for the outbox", err)
	}
	o.listen.Do(func() { o.listener.enter(allMessages, o.news) })
	select {
	case <-o.news:
		return nil
	case <-ctx.Done():
		return wrap("wait for the outbox", ctx.Err())
	}
}

// Lease leases the oldest waiting messages to owner. It parks messages that are in a
// state which no store writes.
func (o *Outbox) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	list, err := o.queue.Lease(ctx, owner, lease, limit, except)
	o.leave(err)
	return list, wrap("lease from the outbox", err)
}

// Renew makes owner's lease on messages end one full lease from now.
func (o *Outbox) Renew(ctx context.Context, owner string, lease time.Duration, seqs ...int64) error {
	err := o.queue.Renew(ctx, owner, lease, seqs)
	o.leave(err)
	return wrap("renew a lease of the outbox", err)
}

// Settle records the outcome of messages leased to owner.
func (o *Outbox) Settle(ctx context.Context, owner string, verdicts []outbox.Verdict) error {
	err := o.queue.Settle(ctx, owner, verdicts)
	o.leave(err)
	return wrap("settle messages of the outbox", err)
}

// Lag returns how many messages wait to be published, and for how long.
func (o *Outbox) Lag(ctx context.Context) (outbox.Lag, error) {
	lag, err := o.queue.Lag(ctx)
	return lag, wrap("read the lag of the outbox", err)
}

// Parked returns parked messages, for an operator.
func (o *Outbox) Parked(ctx context.Context, after int64, limit int) ([]outbox.Entry, error) {
	list, err := o.queue.Parked(ctx, after, limit)
	return list, wrap("list the parked messages of the outbox", err)
}

// Requeue makes parked messages wait again.
func (o *Outbox) Requeue(ctx context.Context, seqs ...int64) (int, error) {
	return o.decide(ctx, outbox.ActionRequeue, seqs, nil)
}

// Discard deletes parked messages.
func (o *Outbox) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return o.decide(ctx, outbox.ActionDiscard, seqs, nil)
}

// RequeueAudited does what Requeue does and adds entries to the table
// onlyonce_outbox_audit in the same transaction.
func (o *Outbox) RequeueAudited(ctx context.Context, d outbox.Decision, seqs ...int64) (int, error) {
	return o.decide(ctx, outbox.ActionRequeue, seqs, &d)
}

// DiscardAudited does what Discard does and adds entries to the table
// onlyonce_outbox_audit in the same transaction.
func (o *Outbox) DiscardAudited(ctx context.Context, d outbox.Decision, seqs ...int64) (int, error) {
	return o.decide(ctx, outbox.ActionDiscard, seqs, &d)
}

func (o *Outbox) decide(ctx context.Context, action string, seqs []int64, d *outbox.Decision) (int, error) {
	n, err := o.queue.Decide(ctx, action, seqs, d)
	o.listener.wake(allMessages)
	return n, wrap(action+" messages of the outbox", err)
}

// AuditTrail returns the decisions of people about parked messages, newest first.
func (o *Outbox) AuditTrail(ctx context.Context, before int64, limit int) ([]outbox.AuditEntry, error) {
	list, err := o.queue.AuditTrail(ctx, before, limit)
	return list, wrap("read the audit trail of the outbox", err)
}

// Purge deletes at most limit published messages whose keep time has ended.
func (o *Outbox) Purge(ctx context.Context, limit int) (int, error) {
	n, err := o.queue.Purge(ctx, limit)
	return n, wrap("purge the outbox", err)
}
