package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// creating is how long Migrate waits for a table that is being created.
const creating = 5 * time.Minute

// Migrate creates the table, with billing on demand, turns its time to live on, creates the
// index that Unresolved reads, unless cfg accepts the risk of a table without it, and creates
// the item without which no claim of a new command is granted. It reports whether that item
// was missing. Call it when you set up the table, or once you know why it has lost its
// records, not at every start. It never deletes or changes a record, and an existing table
// keeps its other settings. If the table has records already, DynamoDB goes on to fill the
// index after Migrate has returned.
func Migrate(ctx context.Context, client *dynamodb.Client, cfg Config) (made bool, err error) {
	s, err := cfg.store(client)
	if err == nil {
		made, err = s.migrate(ctx, !slices.Contains(cfg.AcceptRisks, RiskIndex))
	}
	return made, wrap("migrate", err)
}

func (s *Store) migrate(ctx context.Context, indexed bool) (made bool, err error) {
	if err := s.repeat(ctx, func(ctx context.Context) error { return s.create(ctx, indexed) }); err != nil {
		return false, err
	}
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	if err := s.repeat(ctx, s.expire); err != nil {
		return false, err
	}
	if indexed {
		if err := s.repeat(ctx, s.index); err != nil {
			return false, err
		}
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		err := s.request(ctx, func(ctx context.Context) error {
			_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &s.table, Item: keyOf(markKey), ConditionExpression: aws.String("attribute_not_exists(" + attrKey + ")"),
			})
			return err
		})
		if errors.Is(err, errConflict) {
			return nil
		}
		made = made || err == nil || doubtful(err)
		return err
	})
	return made && err == nil, err
}

// create creates the table, unless it is there.
func (s *Store) create(ctx context.Context, indexed bool) error {
	t, err := s.describe(ctx)
	if err == nil {
		if wrong := s.judgeKey(t); wrong != nil {
			return errors.New(wrong.String())
		}
	}
	if !errors.Is(err, ErrForgotten) {
		return err
	}
	in := &dynamodb.CreateTableInput{
		TableName: &s.table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: attributes[:1], KeySchema: keySchema(attrKey),
	}
	if indexed {
		in.AttributeDefinitions = attributes
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{IndexName: aws.String(openIndex), KeySchema: keySchema(attrOpen), Projection: keysOnly}}
	}
	return s.request(ctx, func(ctx context.Context) error {
		_, err := s.client.CreateTable(ctx, in)
		var exists *types.ResourceInUseException
		if errors.As(err, &exists) {
			return nil
		}
		return err
	})
}

// attributes are the keys of the table and of its index.
var attributes = []types.AttributeDefinition{
	{AttributeName: aws.String(attrKey), AttributeType: types.ScalarAttributeTypeS},
	{AttributeName: aws.String(attrOpen), AttributeType: types.ScalarAttributeTypeS},
}

var keysOnly = &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}

func keySchema(attribute string) []types.KeySchemaElement {
	return []types.KeySchemaElement{{AttributeName: aws.String(attribute), KeyType: types.KeyTypeHash}}
}

// hasIndex reports whether the table has the index of open commands, or will have it.
func hasIndex(t *types.TableDescription) bool {
	return slices.ContainsFunc(t.GlobalSecondaryIndexes, func(in types.GlobalSecondaryIndexDescription) bool {
		return aws.ToString(in.IndexName) == openIndex
	})
}

// index creates the index, unless it is there. It gets the throughput of its table.
func (s *Store) index(ctx context.Context) error {
	t, err := s.describe(ctx)
	if err != nil || hasIndex(t) {
		return err
	}
	in := &types.CreateGlobalSecondaryIndexAction{IndexName: aws.String(openIndex), KeySchema: keySchema(attrOpen), Projection: keysOnly}
	if b := t.BillingModeSummary; (b == nil || b.BillingMode != types.BillingModePayPerRequest) && t.ProvisionedThroughput != nil {
		in.ProvisionedThroughput = &types.ProvisionedThroughput{
			ReadCapacityUnits: t.ProvisionedThroughput.ReadCapacityUnits, WriteCapacityUnits: t.ProvisionedThroughput.WriteCapacityUnits,
		}
	}
	return s.request(ctx, func(ctx context.Context) error {
		_, err := s.client.UpdateTable(ctx, &dynamodb.UpdateTableInput{
			TableName: &s.table, AttributeDefinitions: attributes,
			GlobalSecondaryIndexUpdates: []types.GlobalSecondaryIndexUpdate{{Create: in}},
		})
		return err
	})
}

// ready returns once the table can be used.
func (s *Store) ready(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, creating)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		var t *types.TableDescription
		err := s.repeat(limited, func(ctx context.Context) (err error) {
			if t, err = s.describe(ctx); errors.Is(err, ErrForgotten) {
				t, err = &types.TableDescription{TableStatus: types.TableStatusCreating}, nil // it is not visible yet
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case t.TableStatus == types.TableStatusActive || t.TableStatus == types.TableStatusUpdating:
			return nil
		}
		select {
		case <-limited.Done():
			return fmt.Errorf("the table %s is in the status %s: %w", s.table, t.TableStatus, limited.Err())
		case <-time.After(pause):
		}
	}
}

// describe returns the settings of the table, or ErrForgotten if there is none.
func (s *Store) describe(ctx context.Context) (t *types.TableDescription, err error) {
	err = s.request(ctx, func(ctx context.Context) error {
		r, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
		if err == nil {
			t = r.Table
		}
		return err
	})
	return t, err
}

// expires reports whether DynamoDB deletes items by their time to live.
func (s *Store) expires(ctx context.Context) (on bool, err error) {
	err = s.request(ctx, func(ctx context.Context) error {
		r, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
		if err == nil && r.TimeToLiveDescription != nil {
			d := r.TimeToLiveDescription
			on = aws.ToString(d.AttributeName) == attrTTL &&
				(d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling)
		}
		return err
	})
	return on, err
}

// expire turns the time to live on. An emulator may have none, which Diagnose then shows.
func (s *Store) expire(ctx context.Context) error {
	if on, err := s.expires(ctx); on || err != nil {
		return err
	}
	return s.request(ctx, func(ctx context.Context) error {
		_, err := s.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
			TableName:               &s.table,
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(attrTTL), Enabled: aws.Bool(true)},
		})
		var failed smithy.APIError
		if errors.As(err, &failed) && failed.ErrorCode() == "UnknownOperationException" {
			return nil
		}
		return err
	})
}
