package waiters

import (
	"context"
	"errors"
	"sync"
	"time"
)

// IdleGrace is how long a subscription stays open without waiters.
const IdleGrace = time.Second

// Subscriptions holds the subscriptions to all partitions of a store whose commands have
// waiters in this process.
type Subscriptions struct {
	listen Listen

	mu         sync.Mutex
	partitions map[byte]*subscription
	closed     bool
	running    sync.WaitGroup
}

// Listen receives from the store the names whose commands have ended in a partition, and
// wakes their waiters, until its context ends. wake("") wakes all waiters of the partition.
// Listen does that whenever it begins to listen, because it has missed earlier ends.
type Listen func(ctx context.Context, partition byte, wake func(name string))

// NewSubscriptions returns subscriptions that listen begins.
func NewSubscriptions(listen Listen) *Subscriptions {
	return &Subscriptions{listen: listen, partitions: make(map[byte]*subscription)}
}

// A subscription is a subscription to one partition.
type subscription struct {
	waiting Waiters
	stop    context.CancelFunc
	idle    *time.Timer // stops the subscription; nil while it has waiters
}

var errClosed = errors.New("the store is closed")

// Wait returns when the command with the name may have ended, or with the error of ctx.
func (w *Subscriptions) Wait(ctx context.Context, partition byte, name string) error {
	woken := make(chan struct{}, 1)
	if !w.enter(partition, name, woken) {
		return errClosed
	}
	defer w.exit(partition, name, woken)
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Subscriptions) enter(partition byte, name string, woken chan struct{}) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	sub := w.partitions[partition]
	if sub == nil {
		ctx, stop := context.WithCancel(context.Background())
		sub = &subscription{waiting: make(Waiters), stop: stop}
		w.partitions[partition] = sub
		w.running.Go(func() { w.listen(ctx, partition, func(name string) { w.wake(sub, name) }) })
	}
	if sub.idle != nil {
		sub.idle.Stop()
		sub.idle = nil
	}
	sub.waiting.Add(name, woken)
	return true
}

func (w *Subscriptions) exit(partition byte, name string, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sub := w.partitions[partition]
	if sub == nil {
		return // the store is closed
	}
	sub.waiting.Remove(name, woken)
	if len(sub.waiting) == 0 {
		sub.idle = time.AfterFunc(IdleGrace, func() { w.stopIdle(partition, sub) })
	}
}

func (w *Subscriptions) stopIdle(partition byte, sub *subscription) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(sub.waiting) == 0 && w.partitions[partition] == sub {
		delete(w.partitions, partition)
		sub.stop()
	}
}

func (w *Subscriptions) wake(sub *subscription, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name == "" {
		sub.waiting.WakeAll()
		return
	}
	sub.waiting.Wake(name)
}

// Close wakes everyone and returns once nobody listens.
func (w *Subscriptions) Close() {
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
