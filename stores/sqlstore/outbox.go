package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/messages"
)

// An Outbox is the queue of messages in the store's database.
type Outbox struct {
	engine   engine.Outbox
	queue    *messages.Queue
	appended chan struct{}
}

var (
	_ outbox.Waker   = (*Outbox)(nil)
	_ outbox.Auditor = (*Outbox)(nil)
)

func newOutbox(e engine.Outbox) *Outbox {
	return &Outbox{engine: e, queue: messages.New(e), appended: make(chan struct{}, 1)}
}

// Outbox returns the queue of messages in the store's database. It always returns the
// same Outbox.
func (s *Store) Outbox() *Outbox { return s.outbox }

// Append adds messages to the queue in tx: they are in the queue once tx is
// committed, and nothing is left of them if it is rolled back. A relay of this
// process is woken. Other relays find the messages at their next poll.
//
// tx may be the transaction that DoTx, RunTx or httponce.WrapTx passed to its
// function, or one that the caller opened on the store's database.
func (o *Outbox) Append(ctx context.Context, tx *sql.Tx, list ...outbox.Message) error {
	s, err := o.engine.OutboxIn(ctx, tx)
	if err != nil {
		return outboxError("append to", err)
	}
	for _, m := range list {
		message, err := messages.Prepare(ctx, m)
		if err != nil {
			return err
		}
		if _, err := s.Exec("outbox append", message.Append()); err != nil {
			return outboxError("append to", err)
		}
	}
	o.wake()
	return nil
}

func (o *Outbox) wake() {
	select {
	case o.appended <- struct{}{}:
	default:
	}
}

// Wait returns when this process has appended messages or requeued some.
func (o *Outbox) Wait(ctx context.Context) error {
	select {
	case <-o.appended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Lease leases the oldest waiting messages to owner. It parks messages that are in a
// state that no store writes.
func (o *Outbox) Lease(ctx context.Context, owner string, lease time.Duration, limit int, except ...string) ([]outbox.Entry, error) {
	list, err := o.queue.Lease(ctx, owner, lease, limit, except)
	return list, outboxError("lease from", err)
}

// Renew makes owner's lease on messages end one full lease from now.
func (o *Outbox) Renew(ctx context.Context, owner string, lease time.Duration, seqs ...int64) error {
	err := o.queue.Renew(ctx, owner, lease, seqs)
	return outboxError("renew a lease of", err)
}

// Settle records the outcome of messages leased to owner.
func (o *Outbox) Settle(ctx context.Context, owner string, verdicts []outbox.Verdict) error {
	err := o.queue.Settle(ctx, owner, verdicts)
	return outboxError("settle messages of", err)
}

// Lag returns how many messages wait to be published, and for how long.
func (o *Outbox) Lag(ctx context.Context) (outbox.Lag, error) {
	lag, err := o.queue.Lag(ctx)
	return lag, outboxError("read the lag of", err)
}

// Parked returns parked messages, for an operator.
func (o *Outbox) Parked(ctx context.Context, after int64, limit int) ([]outbox.Entry, error) {
	list, err := o.queue.Parked(ctx, after, limit)
	return list, outboxError("list the parked messages of", err)
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
	if err == nil {
		o.wake()
	}
	return n, outboxError(action+" messages of", err)
}

// AuditTrail returns the decisions of people about parked messages, newest first.
func (o *Outbox) AuditTrail(ctx context.Context, before int64, limit int) ([]outbox.AuditEntry, error) {
	list, err := o.queue.AuditTrail(ctx, before, limit)
	return list, outboxError("read the audit trail of", err)
}

// Purge deletes at most limit published messages whose keep time has ended.
func (o *Outbox) Purge(ctx context.Context, limit int) (int, error) {
	n, err := o.queue.Purge(ctx, limit)
	return n, outboxError("purge", err)
}

// outboxError adds the names of the store and of the outbox's method to an error.
func outboxError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlstore: %s the outbox: %w", doing, err)
}
