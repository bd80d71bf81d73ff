package orders

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/services/internal/broker"
)

// consumer is the name of the consumer that creates shipments, in the records of its
// inbox.
const consumer = "orders-shipping"

// redelivery is the shortest time after which an unfinished delivery is repeated.
const redelivery = broker.DefaultAckWait

// openInboxes opens the consumer's inbox, and that of retries. The first has a poison
// table for messages from a broker, which would redeliver a failing message forever;
// without a broker, the outbox parks such a message. Retries have no limit.
func (a *API) openInboxes() {
	cfg := inbox.Config{Consumer: consumer, Redelivery: redelivery, Keep: a.cfg.KeepMessages, Observer: onlyonce.SlogObserver(a.cfg.Log, a.cfg.ShowKey)}
	retries := cfg
	retries.MaxAttempts, retries.Poison = math.MaxInt, afterRetry
	a.retries = inbox.NewTx(a.store, retries)
	if a.cfg.Broker != "" {
		cfg.MaxAttempts, cfg.Poison = a.cfg.MaxAttempts, a.poison
	}
	a.inbox = inbox.NewTx(a.store, cfg)
}

// applyEvent makes a message take effect once: its ID is recorded in the transaction of its
// shipment. If the message was given up, poisoned is the reason.
func (a *API) applyEvent(ctx context.Context, m outbox.Message) (poisoned, err error) {
	if m.Topic != TopicCreated {
		return nil, nil // for other consumers
	}
	if err := a.checkOrigin(ctx, m); err != nil {
		return nil, err
	}
	result, err := inbox.HandleTx(ctx, a.inbox, received(m), func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
		if !m.CreatedAt.IsZero() && time.Since(m.CreatedAt) >= a.cfg.KeepMessages {
			if a.cfg.Broker != "" {
				return struct{}{}, errOld
			}
			if shipped, err := a.shipped(ctx, tx, m); shipped || err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, a.ship(ctx, tx, m)
	})
	return result.Poisoned, err
}

func received(m outbox.Message) inbox.Message {
	return inbox.Message{ID: m.ID, Tenant: m.Tenant, Payload: m.Payload, Headers: m.Headers}
}

// errOld gives up a message of which nobody knows whether it was handled: its record would
// have expired. NATS delivers such messages if its consumer is deleted.
var errOld = onlyonce.Final(errors.New("the message is older than the records of handled messages, and may have been handled: if its order has a shipment, discard it"))

// receive handles a message from the broker. A message that was given up needs no
// redelivery.
func (a *API) receive(ctx context.Context, m outbox.Message) error {
	_, err := a.applyEvent(ctx, m)
	if errors.Is(err, onlyonce.ErrInFlight) || errors.Is(err, onlyonce.ErrUnavailable) {
		return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err) // not the message's fault
	}
	return err
}

// receivers is the number of messages that are handled at the same time; those of one
// batch share the commits of the store.
const receivers = 32

// deliver passes messages to the consumer in this process: without a broker, the queue
// itself delivers them, and keeps those that fail.
func (a *API) deliver(ctx context.Context, messages []outbox.Message) []error {
	errs := make([]error, len(messages))
	turns := make(chan struct{}, receivers)
	var all sync.WaitGroup
	for i, m := range messages {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			errs[i] = a.receive(ctx, m)
			if errs[i] != nil && ctx.Err() != nil {
				errs[i] = fmt.Errorf("%w: there was no time to handle the message: %w", outbox.ErrUnavailable, errs[i])
			}
		})
	}
	all.Wait()
	return errs
}
