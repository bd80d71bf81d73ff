package orders

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// consumer names the one who makes shipments, in the records of its inbox.
const consumer = "orders-shipping"

// redelivery is how long a delivery may take, at least, before there is another.
const redelivery = 30 * time.Second

// newInbox returns the consumer's inbox. A broker would deliver for ever what
// fails; without one the outbox parks it.
func (a *API) newInbox() *inbox.TxInbox[*sql.Tx] {
	cfg := inbox.Config{Consumer: consumer, Redelivery: redelivery, Keep: a.cfg.KeepMessages, Observer: onlyonce.SlogObserver(a.cfg.Log, a.cfg.ShowKey)}
	if a.cfg.Broker != "" {
		cfg.MaxAttempts, cfg.Poison = a.cfg.MaxAttempts, a.poison
	}
	return inbox.NewTx(a.store, cfg)
}

// take lets a message take effect once: its id is recorded in the transaction of
// its shipment. It returns why the message was given up, if it was.
func (a *API) take(ctx context.Context, m outbox.Message) (poisoned, err error) {
	if m.Topic != TopicCreated {
		return nil, nil // another consumer's
	}
	got := inbox.Message{ID: m.ID, Tenant: m.Tenant, Payload: m.Payload, Headers: m.Headers}
	result, err := inbox.HandleTx(ctx, a.inbox, got, func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
		return struct{}{}, a.ship(ctx, tx, m)
	})
	return result.Poisoned, err
}

// receive takes a message that was delivered. A message that was given up is done
// with.
func (a *API) receive(ctx context.Context, m outbox.Message) error {
	_, err := a.take(ctx, m)
	if errors.Is(err, onlyonce.ErrInFlight) || errors.Is(err, onlyonce.ErrUnavailable) {
		return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err) // no fault of the message
	}
	return err
}

// receivers is how many messages are handled at the same time; those of one
// batch share the commits of the store.
const receivers = 32

// deliver hands messages to the consumer in this process: without a broker the
// queue itself delivers them, and keeps those that fail.
func (a *API) deliver(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	turns := make(chan struct{}, receivers)
	var all sync.WaitGroup
	for i, m := range messages {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			errs[i] = a.receive(ctx, m)
		})
	}
	all.Wait()
	return errs
}
