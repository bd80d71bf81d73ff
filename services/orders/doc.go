// Package orders is a multi-tenant order service. It shows the third way to use
// the library, Do around a command handler, with an outbox on the sending side
// and an inbox on the receiving side:
//
//	POST /orders ── idempotency (the command runs once)
//	    └─ one transaction: order row + outbox row + stored result
//	          └─ relay ── broker ── inbox (the message takes effect once) ── shipment row
//
// Without a broker, the relay of each process passes events from the queue in the
// store to the consumer in the same process. Events survive a restart, and an event
// that keeps failing is parked in the queue. With a broker, events go through NATS
// JetStream or RabbitMQ, and the consumer stores events that it can't handle in its own
// table (see Poisoned).
//
// A POST needs an Idempotency-Key: without one, a client that lost the response could
// only order twice. An invalid request is rejected before its key is claimed, and
// leaves the key unused. Unknown members of a body are ignored.
//
// The tenant comes from the bearer token. A caller without a token may name its tenant
// in X-Tenant-ID, but only if anonymous callers are allowed.
//
// Money is exact: decimal text with at most 4 digits after the point. A total has as
// many digits as the most precise price, and at least 2. Callers see only the public ID
// of an order (package publicid). Lists are newest first.
package orders
