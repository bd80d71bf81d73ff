package storeurl

import (
	"context"
	"fmt"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

func parseDynamo(raw string) (URL, error) {
	u, err := dynamostore.ParseURL(raw)
	if err != nil {
		return URL{}, mistakef("the store URL can't be used: %w", err)
	}
	shown := "dynamodb://" + u.Region
	if u.Config.Table != "" {
		shown += "/" + u.Config.Table
	}
	return URL{Engine: DynamoDB, server: shown, Source: raw}, nil
}

// dynamoConnections is how many idle connections a process keeps to DynamoDB.
const dynamoConnections = 256

// DialDynamo returns a client for the region of a URL, and the settings of the store. The
// AWS SDK finds the credentials. It connects when the client is used.
func (u URL) DialDynamo(ctx context.Context) (*dynamodb.Client, dynamostore.Config, error) {
	parsed, err := dynamostore.ParseURL(u.Source)
	if err != nil {
		return nil, dynamostore.Config{}, mistakef("open %v: %w", u, err)
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(parsed.Region), config.WithHTTPClient(
		awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = dynamoConnections, dynamoConnections
		})))
	if err != nil {
		return nil, dynamostore.Config{}, fmt.Errorf("open %v: %w", u, err)
	}
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if parsed.Endpoint != "" {
			o.BaseEndpoint = &parsed.Endpoint
		}
	}), parsed.Config, nil
}

func (u URL) openDynamo(ctx context.Context, acceptRisks []string) (Records, error) {
	client, cfg, err := u.DialDynamo(ctx)
	if err != nil {
		return nil, err
	}
	cfg.AcceptRisks = append(cfg.AcceptRisks, u.Risks(acceptRisks)...)
	store, err := dynamostore.Open(ctx, client, cfg)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", u, err)
	}
	return store, nil
}
