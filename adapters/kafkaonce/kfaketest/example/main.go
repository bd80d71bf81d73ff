// Example consumes the topic "orders" and ships each order once, although the shop sends it twice:
//
//	go run ./adapters/kafkaonce/kfaketest/example
//
// It starts a fake of Kafka in its own process. With -brokers host:9092, it uses a real one, whose
// topic "orders" must exist. It keeps its records in memory, and so it ships an order again that is
// delivered after a restart. Use a store that survives a restart instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/kafkaonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func main() {
	brokers := flag.String("brokers", "", "addresses of Kafka, separated by commas; default: a fake in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *brokers == "" {
		fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
		if err != nil {
			log.Fatal(err)
		}
		defer fake.Close()
		*brokers = strings.Join(fake.ListenAddrs(), ",")
	}
	if err := run(ctx, strings.Split(*brokers, ","), func(order string) { fmt.Println("shipped", order) }); err != nil {
		log.Print(err)
	}
}

// run sends three orders, and ships them until ctx ends.
func run(ctx context.Context, brokers []string, ship func(order string)) error {
	if err := send(ctx, brokers); err != nil {
		return err
	}
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{
		Consumer:   "shipping",
		Redelivery: 45 * time.Second, // the session timeout of the group
	})
	consumer := kafkaonce.New(in, func(_ context.Context, r *kgo.Record) error {
		ship(string(r.Value))
		return nil
	}, kafkaonce.Config{})
	return consumer.Run(ctx, kgo.SeedBrokers(brokers...), kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"))
}

// send sends each order twice, as a shop does that got no acknowledgment the first time.
func send(ctx context.Context, brokers []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := ping(ctx, client); err != nil {
		return fmt.Errorf("no broker responds at %s: %w", strings.Join(brokers, ","), err)
	}
	for _, order := range []string{"a lamp", "a chair", "a table"} {
		id := []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(outbox.NewID())}}
		for range 2 {
			r := &kgo.Record{Topic: "orders", Key: []byte("customer 7"), Value: []byte(order), Headers: id}
			if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ping returns an error if no broker responds. Without that, the client would try for ever, and say nothing.
func ping(ctx context.Context, client *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return client.Ping(ctx)
}
