package migrating_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// A table is a DynamoDB table with the layout that Powertools for AWS Lambda uses by default.
type table struct {
	client *dynamodb.Client
	name   string
}

// An order is what a handler creates and returns.
type order struct {
	ID string `json:"id"`
}

// itemID returns the id of an item in the table: the name of the function, and a hash of the
// part of the event that is the key, as JSON. Unlike Go, Python writes <, > and & as they are,
// and escapes what is not ASCII.
func itemID(function, key string) string {
	var text, ascii bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(key)
	for _, unit := range utf16.Encode([]rune(strings.TrimSuffix(text.String(), "\n"))) {
		if unit < 0x7f {
			ascii.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&ascii, `\u%04x`, unit)
		}
	}
	sum := md5.Sum(ascii.Bytes())
	return function + "#" + hex.EncodeToString(sum[:])
}

var errInProgress = errors.New("the order is being created")

func createByTable(t table, create func(ctx context.Context, key string) (order, error)) func(ctx context.Context, key string) (order, error) {
	return func(ctx context.Context, key string) (o order, err error) {
		id, now := &types.AttributeValueMemberS{Value: itemID("orders.handler", key)}, time.Now()
		seconds := func(at time.Time) types.AttributeValue {
			return &types.AttributeValueMemberN{Value: strconv.FormatInt(at.Unix(), 10)}
		}
		millis := func(at time.Time) types.AttributeValue {
			return &types.AttributeValueMemberN{Value: strconv.FormatInt(at.UnixMilli(), 10)}
		}
		running := &types.AttributeValueMemberS{Value: "INPROGRESS"}
		_, err = t.client.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &t.name,
			Item: map[string]types.AttributeValue{
				"id": id, "status": running, "expiration": seconds(now.Add(time.Hour)), "in_progress_expiration": millis(now.Add(15 * time.Minute)),
			},
			ConditionExpression:      aws.String("attribute_not_exists(id) OR expiration < :now OR (#status = :running AND in_progress_expiration < :now_millis)"),
			ExpressionAttributeNames: map[string]string{"#status": "status"},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":now": seconds(now), ":now_millis": millis(now), ":running": running,
			},
		})
		if exists := new(types.ConditionalCheckFailedException); errors.As(err, &exists) {
			return t.completed(ctx, key)
		} else if err != nil {
			return o, err
		}
		if o, err = create(ctx, key); err != nil {
			_, deleted := t.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &t.name, Key: map[string]types.AttributeValue{"id": id}})
			return o, errors.Join(err, deleted)
		}
		data, err := json.Marshal(o)
		if err != nil {
			return o, err
		}
		_, err = t.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &t.name, Key: map[string]types.AttributeValue{"id": id},
			UpdateExpression:         aws.String("SET #status = :completed, #data = :data"),
			ExpressionAttributeNames: map[string]string{"#status": "status", "#data": "data"},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":completed": &types.AttributeValueMemberS{Value: "COMPLETED"}, ":data": &types.AttributeValueMemberS{Value: string(data)},
			},
		})
		return o, err
	}
}

var errNoItem = errors.New("the table does not have the key, or it has expired")

// completed returns the result in the table, errInProgress or errNoItem.
func (t table) completed(ctx context.Context, key string) (o order, err error) {
	found, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &t.name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: itemID("orders.handler", key)}},
	})
	if err != nil {
		return o, err
	}
	var expires int64
	if n, ok := found.Item["expiration"].(*types.AttributeValueMemberN); ok {
		expires, _ = strconv.ParseInt(n.Value, 10, 64)
	}
	if expires < time.Now().Unix() {
		return o, errNoItem
	}
	data, ok := found.Item["data"].(*types.AttributeValueMemberS)
	if !ok {
		return o, errInProgress
	}
	return o, json.Unmarshal([]byte(data.Value), &o)
}

func createOnce(guard *onlyonce.Guard, create func(ctx context.Context, key string) (order, error)) func(ctx context.Context, key string, event []byte) (order, error) {
	return func(ctx context.Context, key string, event []byte) (order, error) {
		answer, err := onlyonce.Do(ctx, guard, onlyonce.Request{
			ID:          onlyonce.ID{Tenant: "shop", Operation: "orders.handler", Key: key},
			Fingerprint: onlyonce.Fingerprint(event),
		}, func(ctx context.Context) (order, error) { return create(ctx, key) })
		return answer.Value, err
	}
}

func createAfterTheTable(t table, guard *onlyonce.Guard, create func(ctx context.Context, key string) (order, error)) func(ctx context.Context, key string, event []byte) (order, error) {
	return createOnce(guard, func(ctx context.Context, key string) (order, error) {
		o, err := t.completed(ctx, key)
		switch {
		case err == nil: // the old version created it: its result becomes that of this command
			return o, nil
		case errors.Is(err, errInProgress): // the old version began it, and may have died
			return o, onlyonce.Unknown(err)
		case !errors.Is(err, errNoItem):
			return o, err // a retry looks again
		}
		return create(ctx, key)
	})
}

// newTable returns an empty table on a fake of DynamoDB.
func newTable(t *testing.T) table {
	t.Helper()
	server := dynamofake.Start()
	t.Cleanup(server.Close)
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://" + server.Address), HTTPClient: &http.Client{Transport: transport},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	})
	made := table{client, "idempotency"}
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &made.name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
	}); err != nil {
		t.Fatal(err)
	}
	return made
}

// orderSeventeen is the hash of the key order-17.
const orderSeventeen = "307f2c7570f91850a9ad3456ef9ad74f"

// orderKey makes an order of a charge.
func (b *bank) orderKey(ctx context.Context, key string) (order, error) {
	receipt, err := b.chargeKey(ctx, key)
	return order{receipt}, err
}

func TestPowertoolsTable_TheIDIsTheOneThatPowertoolsComputes(t *testing.T) {
	// By Python: hashlib.md5(json.dumps(key).encode()).hexdigest()
	for key, hash := range map[string]string{
		"order-17":          orderSeventeen,
		"a&b":               "35600015255501f5cd0a8b3773444e90",
		"x<y>":              "73b5818e180403797b5684ee25e2dc8d",
		"café":              "792880d74f2791a68c2a8972d19c728e",
		"\"\\\t\x7f\u2028😀": "bf84d140fbdb1f8dec36a968cb0cd3e7",
	} {
		if got := itemID("orders.handler", key); got != "orders.handler#"+hash {
			t.Errorf("the id of %q is %s", key, got)
		}
	}
}

func TestPowertoolsTable_ByHandAFailureRunsAgainAndAnyPayloadGetsTheResult(t *testing.T) {
	var b bank
	byHand := createByTable(newTable(t), b.orderKey)
	b.fails = errNoAnswer
	if _, err := byHand(t.Context(), "a"); !errors.Is(err, errNoAnswer) {
		t.Error(err)
	}
	b.fails = nil
	for range 2 { // the failed run may have taken effect, and it is repeated
		if o, err := byHand(t.Context(), "a"); err != nil || o.ID != "receipt 2 for a" {
			t.Errorf("%+v, %v", o, err)
		}
	}
	b.wantCharges(t, 2)
}

func TestPowertoolsTable_WithDoAnotherPayloadIsRejected(t *testing.T) {
	var b bank
	once := createOnce(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), b.orderKey)
	for range 2 {
		if o, err := once(t.Context(), "a", []byte("1")); err != nil || o.ID != "receipt 1 for a" {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if _, err := once(t.Context(), "a", []byte("2")); !errors.Is(err, onlyonce.ErrMismatch) {
		t.Errorf("another payload: %v", err)
	}
	b.wantCharges(t, 1)
}

func TestPowertoolsTable_AfterTheSwitchAnOrderOfTheOldVersionIsNotCreatedAgain(t *testing.T) {
	var b bank
	old := newTable(t)
	before := createByTable(old, b.orderKey)
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true, Observer: onlyonce.DiscardEvents})
	after := createAfterTheTable(old, guard, b.orderKey)
	if _, err := before(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if o, err := after(t.Context(), "old", []byte("1")); err != nil || o.ID != "receipt 1 for old" {
			t.Errorf("the old order: %+v, %v", o, err)
		}
	}
	if o, err := after(t.Context(), "new", []byte("1")); err != nil || o.ID != "receipt 2 for new" {
		t.Errorf("a new order: %+v, %v", o, err)
	}
	dying := createByTable(old, func(context.Context, string) (order, error) { panic("the process died") })
	func() {
		defer func() { _ = recover() }()
		_, _ = dying(t.Context(), "doubtful")
	}()
	if _, err := after(t.Context(), "doubtful", []byte("1")); !errors.Is(err, errInProgress) {
		t.Errorf("an order that the old version began: %v", err)
	}
	if _, err := after(t.Context(), "doubtful", []byte("1")); !errors.Is(err, onlyonce.ErrUnknown) {
		t.Errorf("its retry: %v", err)
	}
	b.wantCharges(t, 2)
}
