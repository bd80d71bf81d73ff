package pgxstore

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// An Outbox is the queue of messages in the store's database. It is the Outbox
// of sqlstore with an Append for pgx, and its relays are notified of messages
// that other processes append.
type Outbox struct {
	*sqlstore.Outbox
	listener *listener
	listen   sync.Once
	news     chan struct{}
}

var (
	_ outbox.Queue = (*Outbox)(nil)
	_ outbox.Waker = (*Outbox)(nil)
)

func newOutbox(pool *pgxpool.Pool, plain *sqlstore.Outbox) *Outbox {
	return &Outbox{Outbox: plain, listener: newListener(pool, outboxChannel, outboxLock), news: make(chan struct{}, 1)}
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
func (o *Outbox) Append(ctx context.Context, tx pgx.Tx, messages ...outbox.Message) error {
	var b pgx.Batch
	for _, m := range messages {
		m, err := outbox.Prepare(ctx, m)
		if err != nil {
			return err
		}
		headers, err := json.Marshal(m.Headers)
		if err != nil {
			return wrap("append to the outbox", err)
		}
		payload := m.Payload
		if payload == nil {
			payload = []byte{}
		}
		b.Queue(sqlText["outbox append"], m.ID, m.Topic, m.Key, m.Tenant, string(headers), payload)
	}
	appended := b.Len()
	if appended == 0 {
		return nil
	}
	told := o.listener.notify(allMessages)
	told.queue(&b)
	results := tx.SendBatch(ctx, &b)
	for range appended {
		if _, err := results.Exec(); err != nil {
			return wrap("append to the outbox", errors.Join(err, results.Close()))
		}
	}
	return wrap("append to the outbox", errors.Join(told.read(results), results.Close()))
}

// Wait returns when messages have, or may have, been appended since it last
// returned, by this process or another. The store listens from the first call
// on.
func (o *Outbox) Wait(ctx context.Context) error {
	o.listen.Do(func() { o.listener.enter(allMessages, o.news) })
	select {
	case <-o.news:
		return nil
	case <-ctx.Done():
		return wrap("wait for the outbox", ctx.Err())
	}
}

// Requeue makes parked messages wait again.
func (o *Outbox) Requeue(ctx context.Context, seqs ...int64) (int, error) {
	n, err := o.Outbox.Requeue(ctx, seqs...)
	o.listener.wake(allMessages)
	return n, err
}

// Discard deletes parked messages.
func (o *Outbox) Discard(ctx context.Context, seqs ...int64) (int, error) {
	n, err := o.Outbox.Discard(ctx, seqs...)
	o.listener.wake(allMessages)
	return n, err
}
