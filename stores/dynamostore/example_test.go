package dynamostore_test

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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

// The order is an item of a table of the caller's. It is written if and only if the command is
// recorded as completed.
func ExampleStore_RunTx() {
	ctx := context.Background()
	var store *dynamostore.Store // from Open
	guard := onlyonce.NewTx(store, onlyonce.Config{})
	order := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "order", Key: "8c1f"}, Fingerprint: onlyonce.Fingerprint([]byte("2 chairs"))}
	result, err := onlyonce.DoTx(ctx, guard, order, func(_ context.Context, tx *dynamostore.Tx) (string, error) {
		return "or_1", tx.Put(types.Put{
			TableName:           aws.String("orders"),
			Item:                map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "or_1"}},
			ConditionExpression: aws.String("attribute_not_exists(id)"),
		})
	})
	log.Println(result.Value, result.Replayed, err)
}
