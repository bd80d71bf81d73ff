// Package orders is a multi-tenant order service. It shows the third way to use
// the library, Do around a command handler, with an outbox on the sending side
// and an inbox on the receiving side:
//
//	POST /orders ── idempotency (the command runs once)
//	    └─ one transaction: order row + outbox row + stored result
//	          └─ relay ── broker ── inbox (the message takes effect once) ── shipment row
//
// Without a broker the queue in the store is the way from the outbox to the
// consumer: the relay of each process hands events to the consumer in it, they
// survive a restart, and one that keeps failing is parked in the queue. With one,
// events go through NATS JetStream or RabbitMQ, and the consumer keeps what it
// can't handle in a table of its own (see Poisoned).
//
// A POST needs an Idempotency-Key: without one a client whose answer was lost
// could only order twice. What is wrong with a request in itself is rejected
// before the key is looked at, and leaves it unused. Members of a body that the
// API does not know do not count.
//
// A tenant comes from its bearer token. Only where anonymous callers are allowed
// may a caller without a token name its tenant, in X-Tenant-ID.
//
// Money is exact: decimal text with at most 4 digits after the point. A total is
// written with as many as the most precise price, and 2 at least. An order is
// known by its public id only (package publicid), and a list is the newest first.
package orders
