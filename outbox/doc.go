// Package outbox publishes messages about a transaction if and only if it is
// committed. The caller appends a message to a queue in its own transaction,
// together with the rows that the message is about. A Relay publishes the
// message afterwards.
//
//	err := store.Outbox().Append(ctx, tx, outbox.Message{
//		Topic:   "orders.created",
//		Key:     order.ID, // messages of one key are published in order
//		Payload: body,
//	})
//
//	outbox.NewRelay(store.Outbox(), publisher, outbox.Config{}).Run(ctx)
//
// # The promise
//
// A message is published at least once if its transaction was committed, and
// never if it was rolled back. It is published twice when a relay dies or loses
// its lease after publishing the message and before recording that. The ID is
// then the same, so a consumer can detect the repeat (see package inbox).
//
// A message with a Key is first published only after all messages that were
// appended before it with the same Key have been acknowledged. Concurrent
// transactions that append to one Key have no defined order; if they need one,
// let them lock a common row. Messages with other keys or without a key don't
// wait: a message that fails holds back only its own key, even while it is
// parked.
//
// Any number of relays may run on one queue, in any number of processes.
package outbox
