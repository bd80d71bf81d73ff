package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/waiters"
)

// Wait returns when the record of id may have changed or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	p := s.known.Load().keys.of(id.Hash())
	return wrap("wait", s.subscriptions.Wait(ctx, p.partition, p.name))
}

// subscribe returns how the channel of a partition is listened to. A subscription that
// was lost is made again.
func subscribe(client rueidis.Client, k keys) waiters.Listen {
	return func(ctx context.Context, partition byte, wake func(name string)) {
		channel := k.ended(partition)
		subscribed := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { wake("") })
		unsubscribing := rueidis.WithOnReceiveReturnHook(subscribed, func(err error, conn rueidis.CommandClient) error {
			return errors.Join(err, conn.Do(context.WithoutCancel(ctx), conn.B().Sunsubscribe().Channel(channel).Build()).Error())
		})
		for ctx.Err() == nil {
			// Waiters poll as well, so an error only makes them slower.
			_ = client.Receive(unsubscribing, client.B().Ssubscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { wake(m.Message) })
			select {
			case <-ctx.Done():
			case <-time.After(waiters.IdleGrace):
			}
		}
	}
}
