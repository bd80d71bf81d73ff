package dynamostore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func TestOpen_RejectsWhatBreaksThePromise(t *testing.T) {
	t.Parallel()
	client := connect(t, dynalite.Start(t).Address)
	wants := func(cfg dynamostore.Config, text string) {
		t.Helper()
		if _, err := dynamostore.Open(t.Context(), client, cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: error %v, want one with %q", cfg, err, text)
		}
	}
	wants(dynamostore.Config{}, "forgotten: ")
	migrate(t, client, dynamostore.Config{})
	wants(dynamostore.Config{}, "ttl: ")
	wants(dynamostore.Config{Table: "a table"}, "is not the name of a table")
	wants(dynamostore.Config{ClockSkew: -1}, "neither may be negative")
	wants(dynamostore.Config{ClockSkew: time.Minute}, "at least twice as long")
	wants(dynamostore.Config{AcceptRisks: []string{"all"}}, `there is no risk "all"`)
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("other"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeN}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wants(dynamostore.Config{Table: "other", AcceptRisks: []string{dynamostore.RiskTTL, dynamostore.RiskForgotten}}, "table-key: the key of the table other is id (HASH, N) instead of pk (HASH, S)")
	if _, err := dynamostore.Migrate(t.Context(), client, dynamostore.Config{Table: "other"}); err == nil || !strings.Contains(err.Error(), "table-key: ") {
		t.Errorf("migrate: %v", err)
	}
}

func TestOpen_ANilClientPanicsAndSaysWhatToPass(t *testing.T) {
	hazard.CheckPanics(t, "dynamostore: there is no client: pass what dynamodb.NewFromConfig returned",
		func() { _, _ = dynamostore.Open(t.Context(), nil, dynamostore.Config{}) },
		func() { _, _ = dynamostore.Migrate(t.Context(), nil, dynamostore.Config{}) })
}
