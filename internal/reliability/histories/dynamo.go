//go:build linux

package histories

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce/internal/reliability/dynamoserver"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

func init() { openers["dynamodb"] = openDynamo }

// dynamoRecords is a store in DynamoDB, which deletes expired records by itself.
type dynamoRecords struct{ *dynamostore.Store }

func (dynamoRecords) Purge(context.Context, int) (int, error) { return 0, nil }

// dynamoBusiness is the table of business rows. An item has the rows of a command: an
// attribute for each, which counts how often it was inserted.
const dynamoBusiness = "business"

func dynamoKey(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"command": &types.AttributeValueMemberS{Value: key}}
}

func openDynamo(p Place) (Database, error) {
	client, cfg, err := dynamoserver.Dial(p.DSN)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := dynamostore.Open(ctx, client, cfg)
	if err != nil {
		return nil, err
	}
	return database[*dynamostore.Tx, dynamoRecords]{
		Store: dynamoRecords{s}, in: dynamoRecords{s}, closer: s.Close,
		insert: func(_ context.Context, tx *dynamostore.Tx, key, row string) error {
			return tx.Update(types.Update{
				TableName: aws.String(dynamoBusiness), Key: dynamoKey(key), UpdateExpression: aws.String("ADD #row :one"),
				ExpressionAttributeNames:  map[string]string{"#row": row},
				ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
			})
		},
		read: func(ctx context.Context, key string) (rows []string, err error) {
			r, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(dynamoBusiness), Key: dynamoKey(key), ConsistentRead: aws.Bool(true)})
			if err != nil {
				return nil, err
			}
			for row, v := range r.Item {
				if count, ok := v.(*types.AttributeValueMemberN); ok {
					n, err := strconv.Atoi(count.Value)
					if err != nil {
						return nil, err
					}
					rows = append(rows, slices.Repeat([]string{row}, n)...)
				}
			}
			return rows, nil
		},
	}, nil
}

// A DynamoBackend is a store in the fake of DynamoDB, which clients reach through a cutting proxy.
type DynamoBackend struct {
	server *dynamoserver.Server
	cutter *faults.CuttingProxy
}

// NewDynamoBackend starts the fake, and sets up the store and the table of business rows.
func NewDynamoBackend() (b *DynamoBackend, err error) {
	b = &DynamoBackend{}
	if b.server, err = dynamoserver.Start(); err != nil {
		return nil, err
	}
	if err = b.createBusiness(); err == nil {
		b.cutter, err = faults.NewCuttingProxy(b.server.Address())
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *DynamoBackend) createBusiness() error {
	client, _, err := dynamoserver.Dial(dynamoserver.URL(b.server.Address()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: aws.String(dynamoBusiness), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("command"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("command"), KeyType: types.KeyTypeHash}},
	})
	if errors.As(err, new(*types.ResourceInUseException)) {
		return nil // the client sent it again after a response was lost
	}
	return err
}

// Close ends the cutting proxy and the fake.
func (b *DynamoBackend) Close() error {
	if b.cutter != nil {
		b.cutter.Close()
	}
	return b.server.Close()
}

// dynamoLag is how much later a lease may end: a process that begins knows the clock to a
// second, a skew and the time that a response takes.
const dynamoLag = 5 * time.Second

// Plan returns the plan for a store on the fake.
func (b *DynamoBackend) Plan(name string, seed uint64, calls int) Plan {
	place := Place{Store: "dynamodb", Pool: 1, DSN: dynamoserver.URL(b.cutter.Address())}
	return Plan{
		Name: name, Seed: seed, Calls: calls, Place: place, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 24, Slack: clockSlack, Lag: dynamoLag, SeesExpired: true, Resends: 3, Releasing: dynamostore.DefaultTimeout,
		Open: func() (Database, error) { return openDynamo(place) },
	}
}

// Faults returns the faults of the fake and of the network, in addition to the errors and lost
// responses that the fake injects itself.
func (b *DynamoBackend) Faults(kills int) []Fault {
	return append([]Fault{
		{"connections killed", 4, func(*Run, *rand.Rand) error {
			b.cutter.SetTarget(b.server.Address())
			return nil
		}},
		{"servers killed", kills, func(r *Run, _ *rand.Rand) error {
			r.paused.Add(1)
			defer r.paused.Add(-1)
			return b.server.Restart()
		}},
	}, networkFaults(b.cutter)...)
}
