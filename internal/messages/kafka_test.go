package messages_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/outbox"
)

func consumeKafka(ctx context.Context, in *inbox.TxInbox[*sql.Tx], brokers ...string) error {
	consumer := kafkaonce.NewTx(in, func(ctx context.Context, tx *sql.Tx, r *kgo.Record) error {
		return insertShipment(ctx, tx, r.Value)
	}, kafkaonce.Config{})
	return consumer.Run(ctx, kgo.SeedBrokers(brokers...), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"))
}

func deadLetters(producer *kgo.Client) func(context.Context, inbox.Message, error) error {
	return func(ctx context.Context, _ inbox.Message, cause error) error {
		r := kafkaonce.Record(ctx)
		return producer.ProduceSync(ctx, &kgo.Record{
			Topic: r.Topic + ".dead", Key: r.Key, Value: r.Value,
			Headers: append(slices.Clone(r.Headers), kgo.RecordHeader{Key: "error", Value: []byte(cause.Error())}),
		}).FirstErr()
	}
}

func eventID(r *kgo.Record) string {
	var source, id string
	for _, h := range r.Headers {
		switch h.Key {
		case "ce_source":
			source = string(h.Value)
		case "ce_id":
			id = string(h.Value)
		}
	}
	return source + " " + id
}

func newKafka(t *testing.T) (*kgo.Client, []string) {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.dead"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, fake.ListenAddrs()
}

func produce(t *testing.T, client *kgo.Client, value string, headers ...kgo.RecordHeader) {
	t.Helper()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(value), Headers: headers}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestKafka_AConsumer(t *testing.T) {
	client, brokers := newKafka(t)
	store, db := openShop(t)
	id := kgo.RecordHeader{Key: outbox.HeaderID, Value: []byte("m")}
	for _, value := range []string{"a lamp", "a lamp", "a forgery"} {
		produce(t, client, value, id)
	}
	produce(t, client, "a chair")
	in := newTxInbox(store, 45*time.Second, deadLetters(client))
	run(t, func(ctx context.Context) error { return consumeKafka(ctx, in, brokers...) })
	consumertest.Eventually(t, "all are handled", func() bool { return shipments(t, db) == "a lamp, a chair" })
	dead, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("orders.dead"))
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	got := dead.PollFetches(t.Context()).Records()
	if len(got) != 1 || string(got[0].Value) != "a forgery" || got[0].Headers[0].Key != outbox.HeaderID || got[0].Headers[1].Key != "error" {
		t.Errorf("the dead letters are %v", got)
	}
}

func TestKafka_AnEventIsIdentifiedBySourceAndID(t *testing.T) {
	client, brokers := newKafka(t)
	store, db := openShop(t)
	for _, source := range []string{"/shop/1", "/shop/1", "/shop/2"} {
		produce(t, client, "a lamp", kgo.RecordHeader{Key: "ce_source", Value: []byte(source)}, kgo.RecordHeader{Key: "ce_id", Value: []byte("7")})
	}
	in := newTxInbox(store, 45*time.Second, nil)
	run(t, kafkaRun(in, kafkaonce.Config{ID: eventID}, brokers))
	consumertest.Eventually(t, "both are handled", func() bool { return shipments(t, db) == "a lamp, a lamp" })
	for _, key := range []string{"/shop/1 7", "/shop/2 7"} {
		if rec, err := store.Lookup(t.Context(), onlyonce.ID{Operation: "shipping", Key: key}); err != nil || rec.State != onlyonce.StateCompleted {
			t.Errorf("%s is %s, %v", key, rec.State, err)
		}
	}
}

func kafkaRun(in *inbox.TxInbox[*sql.Tx], cfg kafkaonce.Config, brokers []string) func(context.Context) error {
	c := kafkaonce.NewTx(in, func(ctx context.Context, tx *sql.Tx, r *kgo.Record) error { return insertShipment(ctx, tx, r.Value) }, cfg)
	return func(ctx context.Context) error {
		return c.Run(ctx, kgo.SeedBrokers(brokers...), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"))
	}
}
