package dynamostore_test

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

// The table was set up once, with Migrate.
func ExampleOpen() {
	ctx := context.Background()
	var cfg aws.Config // from config.LoadDefaultConfig
	store, err := dynamostore.Open(ctx, dynamodb.NewFromConfig(cfg), dynamostore.Config{Table: "onlyonce"})
	if err != nil {
		log.Fatal(err)
	}
	guard := onlyonce.New(store, onlyonce.Config{})
	charge := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "charge", Key: "8c1f"}, Fingerprint: onlyonce.Fingerprint([]byte("17 EUR"))}
	result, err := onlyonce.Do(ctx, guard, charge, func(context.Context) (string, error) {
		return "ch_1", nil
	})
	log.Println(result.Value, result.Replayed, err)
}
