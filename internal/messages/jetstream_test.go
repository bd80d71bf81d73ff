package messages_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/jetstreamonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/consumertest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func consumeJetStream(ctx context.Context, js jetstream.JetStream, stream string, store *sqlstore.Store) error {
	const ackWait = 30 * time.Second
	orders, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "shipping", AckWait: ackWait})
	if err != nil {
		return err
	}
	in := inbox.NewTx(store, inbox.Config{Consumer: "shipping", Redelivery: ackWait})
	consumer := jetstreamonce.NewTx(in, func(ctx context.Context, tx *sql.Tx, m jetstream.Msg) error {
		return insertShipment(ctx, tx, m.Data())
	}, jetstreamonce.Config{})
	return consumer.Run(ctx, orders)
}

func TestJetStream_AConsumer(t *testing.T) {
	conn, err := nats.Connect(cmp.Or(os.Getenv("ONLYONCE_NATS"), nats.DefaultURL))
	needs.Service(t, "NATS", err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(consumertest.Patience))
	if err != nil {
		t.Fatal(err)
	}
	name := "onlyonce_" + rand.Text()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, Duplicates: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := js.DeleteStream(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	publish := func(data, id string) {
		t.Helper()
		if _, err := js.Publish(t.Context(), name, []byte(data), jetstream.WithMsgID(id)); err != nil {
			t.Fatal(err)
		}
	}
	consumertest.Eventually(t, "the stream has taken a message twice", func() bool {
		publish("a lamp", "1")
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs >= 2
	})
	publish("a chair", "2")
	store, db := openShop(t)
	run(t, func(ctx context.Context) error { return consumeJetStream(ctx, js, name, store) })
	consumertest.Eventually(t, "both are handled", func() bool { return shipments(t, db) == "a lamp, a chair" })
}
