package natsstore_test

import (
	"context"
	"log"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// The servers were set up once, with Migrate.
func ExampleOpen() {
	ctx := context.Background()
	conn, err := nats.Connect("nats://localhost:4222", nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	admin, err := nats.Connect("nats://localhost:4222", nats.UserInfo("admin", "secret")) // of the system account
	if err != nil {
		log.Fatal(err)
	}
	defer admin.Close()
	store, err := natsstore.Open(ctx, js, natsstore.Config{System: admin})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	guard := onlyonce.New(store, onlyonce.Config{})
	charge := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: "8c1f"}, Fingerprint: onlyonce.Fingerprint([]byte("17 EUR"))}
	result, err := onlyonce.Do(ctx, guard, charge, func(context.Context) (string, error) {
		return "ch_1", nil
	})
	log.Println(result.Value, result.Replayed, err)
}
