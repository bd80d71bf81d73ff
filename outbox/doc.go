// Package outbox tells others what a transaction did, if and only if it is
// committed. A message is appended to a queue in the caller's own transaction,
// next to the rows it speaks of; a Relay publishes it afterwards.
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
// never if it was rolled back. It comes twice when a relay dies, or loses its
// lease, between publishing and noting it; its ID is then the same, so that a
// consumer can tell (see package inbox).
//
// Of the messages with one Key, each is published for the first time only after
// all that were appended before it were acknowledged. Transactions that append to
// one Key at the same time are not in any order; let them lock a row they share
// if they must be. Messages of other keys, or without one, don't wait: a message
// that fails holds back its own key only, also while it is parked.
//
// Any number of relays may run on one queue, in any number of processes.
package outbox
