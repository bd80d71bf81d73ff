// Package inbox lets a message that is delivered many times take effect once.
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
//		// not acknowledged: the broker is to deliver it again
//	}
//
// # The promise
//
// A message is known by its ID, once for every consumer. With HandleTx it takes
// effect exactly once in the consumer's own database: what the handler wrote and
// the note that it ran are one commit. With Handle, at most one attempt holds the
// message at a time, and a handled message is not handled again; an attempt that
// died may have had its effect, and is made again. It is noted as handled when
// the handler has returned, never before.
//
// What is delivered again gets the first result. What is delivered while another
// consumer still works on it gets an onlyonce.InFlightError, which says when
// asking again is worth it.
package inbox
