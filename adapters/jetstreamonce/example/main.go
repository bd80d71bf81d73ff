// Example consumes a stream of NATS JetStream and ships each order once, although the shop publishes
// it twice. It needs a server, such as that of "docker run -p 4222:4222 nats -js":
//
//	go run ./adapters/jetstreamonce/example -url nats://127.0.0.1:4222
//
// It creates the stream ONLYONCE_EXAMPLE and deletes it at the end. It keeps its records in memory. Use a
// store that survives a restart instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/jetstreamonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	url := flag.String("url", nats.DefaultURL, "address of the server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, err := nats.Connect(*url)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := run(ctx, conn, "ONLYONCE_EXAMPLE", func(order string) { fmt.Println("shipped", order) }); err != nil {
		log.Print(err)
	}
}

// run publishes three orders to a new stream, and ships them until ctx ends.
func run(ctx context.Context, conn *nats.Conn, stream string, ship func(order string)) (err error) {
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".orders"}})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, js.DeleteStream(context.WithoutCancel(ctx), stream)) }()
	if err := publish(ctx, js, stream+".orders"); err != nil {
		return err
	}
	const ackWait = 30 * time.Second
	orders, err := js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "shipping", AckWait: ackWait})
	if err != nil {
		return err
	}
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "shipping", Redelivery: ackWait})
	consumer := jetstreamonce.New(in, func(_ context.Context, m jetstream.Msg) error {
		ship(string(m.Data()))
		return nil
	}, jetstreamonce.Config{})
	return consumer.Run(ctx, orders)
}

// publish publishes each order twice, as a shop does that got no acknowledgment the first time.
func publish(ctx context.Context, js jetstream.JetStream, subject string) error {
	for _, order := range []string{"a lamp", "a chair", "a table"} {
		m := &nats.Msg{Subject: subject, Data: []byte(order), Header: nats.Header{outbox.HeaderID: {outbox.NewID()}}}
		for range 2 {
			if _, err := js.PublishMsg(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}
