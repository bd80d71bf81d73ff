// Package watermillonce connects outbox and inbox to Watermill, and thereby to
// every broker that Watermill supports.
//
// For sending, a Relay publishes through any message.Publisher:
//
//	relay := outbox.NewRelay(store.Outbox(), watermillonce.NewPublisher(publisher, watermillonce.Config{}), outbox.Config{})
//
// For receiving, a handler of a message.Router runs once for every message:
//
//	router.AddHandler("shipping", "orders", subscriber, "shipments", publisher,
//		watermillonce.Middleware(in)(ship))
//
// A message's UUID is its ID in the outbox, and its metadata are its headers.
// Unlike Watermill's Deduplicator, the inbox records a message as handled when
// its handler has returned, and never before.
package watermillonce
