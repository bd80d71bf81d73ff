package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
)

// idleGrace is how long a subscription stays without waiters, and the pause before one
// that was lost is made again.
const idleGrace = time.Second

// waiters are those who wait for a command, by the partition of its ID. As long as
// a partition has some, this process is subscribed to its channel.
type waiters struct {
	client rueidis.Client
	keys   keys

	mu         sync.Mutex
	partitions map[byte]*subscription
	closed     bool
	running    sync.WaitGroup
}

func newWaiters(client rueidis.Client, k keys) *waiters {
	return &waiters{client: client, keys: k, partitions: make(map[byte]*subscription)}
}

// A subscription is that to the channel of one partition.
type subscription struct {
	waiting map[string]map[chan struct{}]bool // by the name of the record
	stop    context.CancelFunc
	idle    *time.Timer // stops it; nil while somebody waits
}

var errClosed = errors.New("the store is closed")

// Wait returns when the record of id may have changed or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	return wrap("wait", s.waiters.wait(ctx, s.keys.of(id)))
}

func (w *waiters) wait(ctx context.Context, p place) error {
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

func (w *waiters) enter(p place, woken chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	sub := w.partitions[p.partition]
	if sub == nil {
		ctx, stop := context.WithCancel(context.Background())
		sub = &subscription{waiting: make(map[string]map[chan struct{}]bool), stop: stop}
		w.partitions[p.partition] = sub
		w.running.Go(func() { w.listen(ctx, p.partition, sub) })
	}
	if sub.idle != nil {
		sub.idle.Stop()
		sub.idle = nil
	}
	if sub.waiting[p.name] == nil {
		sub.waiting[p.name] = make(map[chan struct{}]bool)
	}
	sub.waiting[p.name][woken] = true
	return true
}

func (w *waiters) exit(p place, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sub := w.partitions[p.partition]
	if sub == nil {
		return // the store is closed
	}
	delete(sub.waiting[p.name], woken)
	if len(sub.waiting[p.name]) == 0 {
		delete(sub.waiting, p.name)
	}
	if len(sub.waiting) == 0 {
		sub.idle = time.AfterFunc(idleGrace, func() { w.stopIdle(p.partition, sub) })
	}
}

func (w *waiters) stopIdle(partition byte, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(sub.waiting) == 0 && w.partitions[partition] == sub {
		delete(w.partitions, partition)
		sub.stop()
	}
}

// listen wakes the partition's waiters until the subscription is stopped. What was
// published before it began, or began again, was missed, so it wakes all of them.
func (w *waiters) listen(ctx context.Context, partition byte, sub *subscription) {
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
func (w *waiters) wake(sub *subscription, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name != "" {
		wakeAll(sub.waiting[name])
		return
	}
	for _, all := range sub.waiting {
		wakeAll(all)
	}
}

func wakeAll(waiting map[chan struct{}]bool) {
	for woken := range waiting {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
}

func (w *waiters) close() {
	w.mu.Lock()
	w.closed = true
	for partition, sub := range w.partitions {
		for _, all := range sub.waiting {
			wakeAll(all)
		}
		if sub.idle != nil {
			sub.idle.Stop()
		}
		sub.stop()
		delete(w.partitions, partition)
	}
	w.mu.Unlock()
	w.running.Wait()
}
