// Package kafkaonce consumes Kafka with franz-go, so that each record takes effect once:
//
//	in := inbox.NewTx(store, inbox.Config{
//		Consumer:   "shipping",
//		Redelivery: 45 * time.Second, // the session timeout of the group
//		Poison:     sendToDeadLetterTopic,
//	})
//	consumer := kafkaonce.NewTx(in, func(ctx context.Context, tx *sql.Tx, r *kgo.Record) error {
//		return insertShipment(ctx, tx, r.Value)
//	}, kafkaonce.Config{})
//	err := consumer.Run(ctx, kgo.SeedBrokers("kafka:9092"), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"))
//
// # Offsets
//
// A record's offset is committed after the inbox has recorded that the record was handled,
// never before. A record that is delivered again, because the process died or a commit was lost,
// has no second effect. A commit after every record is therefore not needed: commits are sent every
// five seconds (kgo.AutoCommitInterval), and when a partition is given up.
//
// A group whose offsets are gone, because it was deleted or had no member for a week, starts at the
// first record of its topics. Set the inbox's Keep to longer than the topics keep their records, or
// those that the inbox no longer knows are handled again.
//
// # Order
//
// The records of a partition are handled one after another, in their order, and those of
// different partitions at the same time. A record that is not handled is tried again, with
// increasing pauses, and meanwhile holds up its partition. If the inbox has a Config.Poison, the
// record goes there after Config.MaxAttempts failures, or after one that is onlyonce.Final, and the
// partition continues. Without a Poison, the partition waits until the record is handled, so that
// the order is preserved.
//
// # Identity
//
// A record that an outbox has sent is identified by its header outbox.HeaderID, so it has one
// effect, however often it was sent. Any other record is identified by its topic, partition, offset
// and timestamp. That covers a record that is delivered again, but not one that its producer has
// sent twice. If your records have an ID of another kind, return it from Config.ID.
package kafkaonce
