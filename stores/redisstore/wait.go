package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// idleGrace is how long a subscription stays open without waiters, and the pause before
// a lost subscription is renewed.
const idleGrace = time.Second

// subscriptions holds the subscriptions to the channels of all partitions whose commands
// have waiters in this process.
type subscriptions struct {
	client rueidis.Client
	keys   keys

	mu         sync.Mutex
	partitions map[byte]*subscription
	closed     bool
	running    sync.WaitGroup
}

func newSubscriptions(client rueidis.Client, k keys) *subscriptions {
	return &subscriptions{client: client, keys: k, partitions: make(map[byte]*subscription)}
}

// A subscription is a subscription to the channel of one partition.
type subscription struct {
	waiting waiters.Waiters // by the name of the record
	stop    context.CancelFunc
	idle    *time.Timer // stops the subscription; nil while it has waiters
}

var errClosed = errors.New("the store is closed")

// Wait returns when the record of id may have changed or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	return wrap("wait", s.subscriptions.wait(ctx, s.keys.of(id)))
}

func (w *subscriptions) wait(ctx context.Context, p place) error {
	woken := make(chan struct{}, 1)
	if !w.enter(p, woken) {
		return errClosed
	}
	defer w.exit(p, woken)
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *subscriptions) enter(p place, woken chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	sub := w.partitions[p.partition]
	if sub == nil {
		ctx, stop := context.WithCancel(context.Background())
		sub = &subscription{waiting: make(waiters.Waiters), stop: stop}
		w.partitions[p.partition] = sub
		w.running.Go(func() { w.listen(ctx, p.partition, sub) })
	}
	if sub.idle != nil {
		sub.idle.Stop()
		sub.idle = nil
	}
	sub.waiting.Add(p.name, woken)
	return true
}

func (w *subscriptions) exit(p place, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sub := w.partitions[p.partition]
	if sub == nil {
		return // the store is closed
	}
	sub.waiting.Remove(p.name, woken)
	if len(sub.waiting) == 0 {
		sub.idle = time.AfterFunc(idleGrace, func() { w.stopIdle(p.partition, sub) })
	}
}

func (w *subscriptions) stopIdle(partition byte, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(sub.waiting) == 0 && w.partitions[partition] == sub {
		delete(w.partitions, partition)
		sub.stop()
	}
}

// listen wakes the partition's waiters until the subscription is stopped. What was
// published before it began, or began again, was missed, so it wakes all of them.
func (w *subscriptions) listen(ctx context.Context, partition byte, sub *subscription) {
	channel := w.keys.ended(partition)
	subscribed := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { w.wake(sub, "") })
	unsubscribing := rueidis.WithOnReceiveReturnHook(subscribed, func(err error, conn rueidis.CommandClient) error {
		return errors.Join(err, conn.Do(context.WithoutCancel(ctx), conn.B().Sunsubscribe().Channel(channel).Build()).Error())
	})
	for ctx.Err() == nil {
		// Waiters poll as well, so an error only makes them slower.
		_ = w.client.Receive(unsubscribing, w.client.B().Ssubscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { w.wake(sub, m.Message) })
		select {
		case <-ctx.Done():
		case <-time.After(idleGrace):
		}
	}
}

// wake wakes those who wait for the record with the name; "" is all.
func (w *subscriptions) wake(sub *subscription, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name == "" {
		sub.waiting.WakeAll()
		return
	}
	sub.waiting.Wake(name)
}

func (w *subscriptions) close() {
	w.mu.Lock()
	w.closed = true
	for partition, sub := range w.partitions {
		sub.waiting.WakeAll()
		if sub.idle != nil {
			sub.idle.Stop()
		}
		sub.stop()
		delete(w.partitions, partition)
	}
	w.mu.Unlock()
	w.running.Wait()
}
