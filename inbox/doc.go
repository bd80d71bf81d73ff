// Package inbox makes a message that is delivered many times take effect once.
//
//	in := inbox.NewTx(store, inbox.Config{
//		Consumer:   "shipping",
//		Redelivery: 30 * time.Second, // the broker's
//		Poison:     sendToPoisonQueue,
//	})
//
//	_, err := inbox.HandleTx(ctx, in, msg, func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
//		return struct{}{}, insertShipment(ctx, tx, msg)
//	})
//	if err != nil {
//		// do not acknowledge the message, so that the broker delivers it again
//	}
//
// # The promise
//
// A message is identified by its ID, separately for each consumer. With
// HandleTx, it takes effect exactly once in the consumer's own database: the
// handler's rows and the record that it ran are one commit. With Handle, at
// most one attempt holds the message at a time, and a handled message is not
// handled again. An attempt that died may have taken effect, and the message is
// handled again. A message is recorded as handled when the handler has
// returned, never before.
//
// A repeated delivery gets the first result. A delivery that arrives while
// another consumer still works on the message gets an onlyonce.InFlightError,
// which says when a retry is worthwhile.
package inbox
