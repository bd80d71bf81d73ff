package dynamostore_test

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

// connect returns a client of an emulator. Each client has connections of its own.
func connect(t testing.TB, address string) *dynamodb.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://" + address), HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
}

// fake starts a fake of DynamoDB that lasts for the test, and returns a client of it.
func fake(t testing.TB) (*dynamofake.Server, *dynamodb.Client) {
	t.Helper()
	s := dynamofake.Start()
	t.Cleanup(s.Close)
	return s, connect(t, s.Address)
}

// skew is enough for an emulator on a busy machine, whose Date may be late.
const skew = 250 * time.Millisecond

// emulated changes a Config for an emulator, which has no time to live.
func emulated(cfg dynamostore.Config) dynamostore.Config {
	cfg.AcceptRisks = append(cfg.AcceptRisks, dynamostore.RiskTTL)
	if cfg.ClockSkew == 0 {
		cfg.ClockSkew = skew
	}
	return cfg
}

func migrate(t testing.TB, client *dynamodb.Client, cfg dynamostore.Config) {
	t.Helper()
	if _, err := dynamostore.Migrate(t.Context(), client, emulated(cfg)); err != nil {
		t.Fatal(err)
	}
}

// open opens a store, and closes it at the end of the test.
func open(t testing.TB, client *dynamodb.Client, cfg dynamostore.Config) *dynamostore.Store {
	t.Helper()
	store, err := dynamostore.Open(t.Context(), client, emulated(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

var tables atomic.Int64

// newTable returns the Config of a table that was set up on the emulator.
func newTable(t testing.TB, client *dynamodb.Client) dynamostore.Config {
	t.Helper()
	cfg := dynamostore.Config{Table: "t-" + strconv.FormatInt(tables.Add(1), 10), Timeout: 5 * time.Minute} // a busy machine may be slow
	migrate(t, client, cfg)
	return cfg
}

// migrated returns a server, a client and a store on it.
func migrated(t testing.TB) (*dynalite.Server, *dynamodb.Client, *dynamostore.Store) {
	t.Helper()
	s := dynalite.Start(t)
	client := connect(t, s.Address)
	migrate(t, client, dynamostore.Config{})
	return s, client, open(t, client, dynamostore.Config{})
}
