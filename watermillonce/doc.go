// Package watermillonce joins outbox and inbox to Watermill, and so to every
// broker that Watermill knows.
//
// Sending, a Relay publishes through any message.Publisher:
//
//	relay := outbox.NewRelay(store.Outbox(), watermillonce.NewPublisher(publisher, watermillonce.Config{}), outbox.Config{})
//
// Receiving, a handler of a message.Router runs once for every message:
//
//	router.AddHandler("shipping", "orders", subscriber, "shipments", publisher,
//		watermillonce.Middleware(in)(ship))
//
// A message's UUID is its ID in the outbox, and its metadata are its headers.
// Unlike Watermill's Deduplicator, the inbox notes a message as handled when its
// handler has returned, and never before.
package watermillonce
