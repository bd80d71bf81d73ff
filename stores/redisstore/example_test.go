package redisstore_test

import (
	"context"
	"log"

	"github.com/redis/rueidis"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

// The server was set up once, with Migrate.
func ExampleOpen() {
	ctx := context.Background()
	options, config, err := redisstore.ParseURL("redis://localhost:6379/0?prefix=shop")
	if err != nil {
		log.Fatal(err)
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := redisstore.Open(ctx, client, config)
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
