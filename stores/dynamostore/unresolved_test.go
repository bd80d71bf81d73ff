package dynamostore_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// A user who needs no count does not pay for the index, and can add it later. (Dynalite adds no
// index to a table that is billed on demand.)
func TestStore_TheIndexOfOpenCommandsCanBeAddedLater(t *testing.T) {
	t.Parallel()
	_, client := fake(t)
	without := dynamostore.Config{AcceptRisks: []string{dynamostore.RiskIndex}}
	migrate(t, client, without)
	if _, err := dynamostore.Open(t.Context(), client, emulated(dynamostore.Config{})); err == nil || !strings.Contains(err.Error(), dynamostore.RiskIndex) {
		t.Errorf("open: %v", err)
	}
	store := open(t, client, without)
	unknown, err := store.Claim(t.Context(), hazard.Claim("unknown"))
	if err == nil {
		err = store.Settle(t.Context(), hazard.Hold(unknown), onlyonce.Settlement{State: onlyonce.StateUnknown})
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, _, err := store.Unresolved(t.Context()); err == nil || !strings.Contains(err.Error(), `no index "open"`) {
		t.Errorf("%d are unresolved, error %v", n, err)
	}
	for range 2 {
		migrate(t, client, dynamostore.Config{})
	}
	store = open(t, client, dynamostore.Config{})
	hazard.Run(t, store, "completed")
	if _, err := store.Claim(t.Context(), hazard.Claim("running")); err != nil {
		t.Fatal(err)
	}
	if n, _, err := store.Unresolved(t.Context()); n != 1 || err != nil {
		t.Errorf("%d are unresolved, error %v", n, err)
	}
	in := &dynamodb.ScanInput{TableName: table, FilterExpression: aws.String("attribute_exists(#open)"), ExpressionAttributeNames: map[string]string{"#open": "open"}}
	if r, err := client.Scan(t.Context(), in); err != nil || r.Count != 2 {
		t.Errorf("%d records are in the index, error %v", r.Count, err)
	}
}

// A record that was resolved, or that is gone, is not counted, even if the index still has it.
func TestStore_WhatTheIndexHasLongerIsNotCounted(t *testing.T) {
	t.Parallel()
	_, client := fake(t)
	migrate(t, client, dynamostore.Config{})
	store := open(t, client, dynamostore.Config{})
	id := hazard.Run(t, store, "completed")
	key := item{"pk": s(keyOf(id))}
	if _, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: table, Key: key, UpdateExpression: aws.String("SET #open = :open"),
		ExpressionAttributeNames: map[string]string{"#open": "open"}, ExpressionAttributeValues: item{":open": s("A")},
	}); err != nil {
		t.Fatal(err)
	}
	if n, _, err := store.Unresolved(t.Context()); n != 0 || err != nil {
		t.Errorf("%d are unresolved, error %v", n, err)
	}
}
