// Package jetstreamonce consumes NATS JetStream, so that each message takes effect once:
//
//	orders, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{Durable: "shipping", AckWait: 30 * time.Second})
//	in := inbox.NewTx(store, inbox.Config{
//		Consumer:   "shipping",
//		Redelivery: 30 * time.Second, // the AckWait
//		Poison:     keepForAPerson,
//	})
//	consumer := jetstreamonce.NewTx(in, func(ctx context.Context, tx *sql.Tx, m jetstream.Msg) error {
//		return insertShipment(ctx, tx, m.Data())
//	}, jetstreamonce.Config{})
//	err = consumer.Run(ctx, orders)
//
// # Acknowledgments
//
// A message is acknowledged after the inbox has recorded that it was handled, never before. While
// its handler runs, the Consumer reports progress to the server (InProgress), so that the server
// does not deliver the message to another consumer. A message that was not handled is delivered
// again after a delay (NakWithDelay). One that went to the inbox's Config.Poison is terminated
// (Term), and the server publishes an advisory about it. A lost acknowledgment is harmless: the
// message is delivered again, has no second effect, and is acknowledged again. The Consumer
// therefore does not wait for the server to confirm an acknowledgment (DoubleAck).
//
// # Order
//
// A message that is delivered again comes after later ones. If the order matters, set the
// MaxAckPending of the consumer to 1: the server then delivers a message when the one before is
// finished.
//
// # Identity
//
// A message that an outbox has sent is identified by its header outbox.HeaderID, and one that was
// published with jetstream.WithMsgID by that ID, which is in the header Nats-Msg-Id. Such a message
// has one effect, however often it was published. The stream itself recognizes the ID only within
// its duplicate window, two minutes by default. A publisher must not use an ID again for another
// message, not even after the window. Any other message is identified by its stream, sequence and
// timestamp. That covers a message that is delivered again, but not one that was published twice.
// If your messages have an ID of another kind, return it from Config.ID.
//
// A consumer that was deleted and created again gets all messages of its stream again. Set the inbox's
// Keep to longer than the stream keeps its messages, or those that the inbox no longer knows are
// handled again.
//
// # Messages that fail
//
// Until it is delivered again, a message that failed counts as one of the consumer's MaxAckPending, which is
// 1,000 by default. While as many messages keep failing, nothing else is delivered. Set the inbox's Poison,
// and a MaxAckPending that is larger than the number of messages that may fail at a time.
//
// # Messages without data
//
// A message that has no data and a header "Status" is never handled: the client of NATS takes it for a
// message of the server and drops it. The server delivers it again after each AckWait. Run then fetches
// other messages one at a time, because the client drops those that follow it in a batch. Until such a
// message is deleted from the stream, it counts as one of the consumer's MaxAckPending: with as many of
// them, nothing else is delivered. An outbox does not accept such a message.
package jetstreamonce
