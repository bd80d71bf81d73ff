package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func s(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }

func n(v int) types.AttributeValue { return &types.AttributeValueMemberN{Value: fmt.Sprint(v)} }

// conditions are those of the store, and some more. Each may refer to :v and :m.
var conditions = []string{
	"", "", "attribute_not_exists(pk)", "attribute_exists(pk)", "v = :v", "attribute_exists(pk) AND attribute_not_exists(v)",
	"NOT v = :v OR m < :m", "(m >= :m AND v <> :v) OR attribute_not_exists(m)", "#v = :v", "m <= :m", "m > :m",
}

// A random call returns its response, as text.
func randomCall(t *testing.T, rng *rand.Rand) func(client *dynamodb.Client) (any, error) {
	key := item{"pk": s([]string{"a", "b", "c", "d"}[rng.IntN(4)])}
	condition := conditions[rng.IntN(len(conditions))]
	var when *string
	var names map[string]string
	values := item{}
	if condition != "" {
		when = &condition
	}
	if strings.Contains(condition, "#v") {
		names = map[string]string{"#v": "v"}
	}
	v, m := s([]string{"x", "y", ""}[rng.IntN(3)]), n(rng.IntN(5))
	if strings.Contains(condition, ":v") {
		values[":v"] = v
	}
	if strings.Contains(condition, ":m") {
		values[":m"] = m
	}
	given := func() item {
		if len(values) == 0 {
			return nil
		}
		return values
	}
	put := item{"pk": key["pk"], "b": &types.AttributeValueMemberB{Value: []byte{byte(rng.IntN(3)), 0xff}}}
	if rng.IntN(2) == 0 {
		put["v"] = s([]string{"x", "y", ""}[rng.IntN(3)])
	}
	if rng.IntN(2) == 0 {
		put["m"] = n(rng.IntN(5))
	}
	if rng.IntN(2) == 0 {
		put["open"] = s([]string{"A", "B"}[rng.IntN(2)])
	}
	switch rng.IntN(9) {
	case 0, 1:
		return func(c *dynamodb.Client) (any, error) {
			r, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: put, ConditionExpression: when, ExpressionAttributeNames: names, ExpressionAttributeValues: given(), ReturnValues: types.ReturnValueAllOld})
			if err != nil {
				return nil, err
			}
			return r.Attributes, nil
		}
	case 2, 3:
		change := []string{"SET w = :w", "SET v = :w, m = :w REMOVE b", "ADD m :w", "SET m = if_not_exists(m, :w) + :w", "REMOVE v, m"}[rng.IntN(5)]
		if strings.Contains(change, ":w") {
			values[":w"] = n(rng.IntN(5) + 1)
		}
		return func(c *dynamodb.Client) (any, error) {
			r, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: table, Key: key, UpdateExpression: &change, ConditionExpression: when, ExpressionAttributeNames: names, ExpressionAttributeValues: given(), ReturnValues: types.ReturnValueAllNew})
			if err != nil {
				return nil, err
			}
			return r.Attributes, nil
		}
	case 4:
		return func(c *dynamodb.Client) (any, error) {
			r, err := c.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: table, Key: key, ConditionExpression: when, ExpressionAttributeNames: names, ExpressionAttributeValues: given(), ReturnValues: types.ReturnValueAllOld})
			if err != nil {
				return nil, err
			}
			return r.Attributes, nil
		}
	case 5:
		in := &dynamodb.ScanInput{TableName: table, ConsistentRead: aws.Bool(true), FilterExpression: aws.String("attribute_exists(v)"), ProjectionExpression: aws.String("pk, v")}
		return func(c *dynamodb.Client) (any, error) {
			r, err := c.Scan(t.Context(), in)
			if err != nil {
				return nil, err
			}
			slices.SortFunc(r.Items, func(a, b item) int {
				return strings.Compare(a["pk"].(*types.AttributeValueMemberS).Value, b["pk"].(*types.AttributeValueMemberS).Value)
			})
			return append([]item{{"count": n(int(r.Count)), "scanned": n(int(r.ScannedCount))}}, r.Items...), nil
		}
	case 6:
		in := &dynamodb.QueryInput{
			TableName: table, IndexName: aws.String([]string{"open", "open", "other"}[rng.IntN(3)]), KeyConditionExpression: aws.String("#open = :open"),
			ExpressionAttributeNames: map[string]string{"#open": "open"}, ExpressionAttributeValues: item{":open": s([]string{"A", "B"}[rng.IntN(2)])},
		}
		return func(c *dynamodb.Client) (any, error) {
			r, err := c.Query(t.Context(), in)
			if err != nil {
				return nil, err
			}
			keys := []string{fmt.Sprint(r.Count, " of ", r.ScannedCount)}
			for _, i := range r.Items {
				keys = append(keys, i["pk"].(*types.AttributeValueMemberS).Value)
			}
			slices.Sort(keys)
			return keys, nil
		}
	case 7:
		wrong := item{"pk": []types.AttributeValue{n(1), s("")}[rng.IntN(2)]}
		return func(c *dynamodb.Client) (any, error) {
			_, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: []*string{table, aws.String("another")}[rng.IntN(2)], Item: wrong})
			return nil, err
		}
	}
	return func(c *dynamodb.Client) (any, error) {
		r, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: table, Key: key, ConsistentRead: aws.Bool(true)})
		if err != nil {
			return nil, err
		}
		return r.Item, nil
	}
}

// The fake does what the emulator does, where that can do the same.
func TestFake_DoesWhatTheEmulatorDoes(t *testing.T) {
	t.Parallel()
	f, faked := fake(t)
	emulated := connect(t, dynalite.Start(t).Address)
	for _, c := range []*dynamodb.Client{faked, emulated} {
		migrate(t, c, dynamostore.Config{})
		if _, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: table, BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash}},
		}); !errors.As(err, new(*types.ResourceInUseException)) {
			t.Errorf("a table was created twice: %v", err)
		}
	}
	failures, effects := 0, 0
	for seed := range uint64(1500) {
		call := randomCall(t, rand.New(rand.NewPCG(seed, 7)))
		wantGot, wantErr := call(emulated)
		got, err := randomCall(t, rand.New(rand.NewPCG(seed, 7)))(faked)
		if code(err) != code(wantErr) || !reflect.DeepEqual(got, wantGot) {
			t.Fatalf("call %d: the fake gave %v, %v; the emulator %v, %v", seed, shown(got), err, shown(wantGot), wantErr)
		}
		if err != nil {
			failures++
		} else {
			effects++
		}
	}
	if failures < 300 || effects < 300 {
		t.Errorf("%d calls failed, and %d did not: both must be many", failures, effects)
	}
	_ = f
}

func code(err error) string {
	var failed smithy.APIError
	if errors.As(err, &failed) {
		return failed.ErrorCode()
	}
	return fmt.Sprint(err)
}

func shown(v any) string {
	show := func(i item) (text string) {
		for name, v := range i {
			text += fmt.Sprintf(" %s=%v", name, reflect.ValueOf(v).Elem().FieldByName("Value"))
		}
		return text
	}
	switch v := v.(type) {
	case item:
		return show(v)
	case []item:
		var text []string
		for _, i := range v {
			text = append(text, show(i))
		}
		return strings.Join(text, ";")
	}
	return fmt.Sprint(v)
}

// countOf returns how often a row was made.
func countOf(ctx context.Context, client *dynamodb.Client, name, row string) (int, error) {
	for {
		r, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &name, Key: item{"row": s(row)}, ConsistentRead: aws.Bool(true)})
		if code(err) == "ThrottlingException" || code(err) == "TransactionConflictException" {
			continue
		}
		made, _ := r.Item["made"].(*types.AttributeValueMemberN)
		if err != nil || made == nil {
			return 0, err
		}
		return strconv.Atoi(made.Value)
	}
}

// What a fake has confirmed is there in the next one with its journal, and what was cut off is
// not.
func TestFake_AJournalHasWhatWasConfirmed(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "journal")
	next := func() *dynamodb.Client {
		f, err := dynamofake.New(journal)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(f)
		t.Cleanup(server.Close)
		return connect(t, strings.TrimPrefix(server.URL, "http://"))
	}
	client := next()
	migrate(t, client, dynamostore.Config{AcceptRisks: []string{dynamostore.RiskIndex}})
	migrate(t, client, dynamostore.Config{}) // the index is added
	store := open(t, client, dynamostore.Config{})
	completed := hazard.Run(t, store, "completed")
	running, err := store.Claim(t.Context(), hazard.Claim("running"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second starts with the journal that the first has rewritten
		store = open(t, next(), dynamostore.Config{})
		for id, state := range map[onlyonce.ID]onlyonce.State{completed: onlyonce.StateCompleted, running.ID: onlyonce.StateProcessing} {
			if r, err := store.Lookup(t.Context(), id); err != nil || r.State != state {
				t.Errorf("the record is %+v, error %v", r, err)
			}
		}
		if err := store.Renew(t.Context(), hazard.Hold(running), time.Hour, nil); err != nil {
			t.Error(err)
		}
	}
	whole, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journal, whole[:len(whole)-3], 0o600); err != nil { // the last renewal
		t.Fatal(err)
	}
	r, err := open(t, next(), dynamostore.Config{}).Lookup(t.Context(), running.ID)
	if err != nil || r.State != onlyonce.StateProcessing {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}
