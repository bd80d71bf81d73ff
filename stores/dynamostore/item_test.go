package dynamostore_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

type item = map[string]types.AttributeValue

var table = aws.String(dynamostore.DefaultTable)

func keyOf(id onlyonce.ID) string {
	hash := id.Hash()
	return "r/" + base64.RawURLEncoding.EncodeToString(hash[:])
}

// stored returns the item of a command's record.
func stored(t *testing.T, client *dynamodb.Client, id onlyonce.ID) item {
	t.Helper()
	r, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: table, Key: item{"pk": &types.AttributeValueMemberS{Value: keyOf(id)}}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Item
}

func put(t *testing.T, client *dynamodb.Client, i item) {
	t.Helper()
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: table, Item: i}); err != nil {
		t.Fatal(err)
	}
}

// keys returns the keys of all items that begin with a prefix.
func keys(t *testing.T, client *dynamodb.Client, prefix string) (found []string) {
	t.Helper()
	pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{TableName: table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Items {
			if key := i["pk"].(*types.AttributeValueMemberS).Value; strings.HasPrefix(key, prefix) {
				found = append(found, key)
			}
		}
	}
	return found
}

func remove(t *testing.T, client *dynamodb.Client, key string) {
	t.Helper()
	if _, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: table, Key: item{"pk": &types.AttributeValueMemberS{Value: key}}}); err != nil {
		t.Fatal(err)
	}
}

func TestStore_DynamoDBMayDeleteARecordAnHourAfterItHasExpired(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	hazard.CheckExpiries(t, s, func(name string, id onlyonce.ID, expires time.Duration) {
		n, ok := stored(t, client, id)["ttl"].(*types.AttributeValueMemberN)
		if expires < 0 {
			if ok {
				t.Errorf("%s: the item is deleted at %s", name, n.Value)
			}
			return
		}
		if !ok {
			t.Fatalf("%s: the item is never deleted", name)
		}
		at, err := strconv.ParseInt(n.Value, 10, 64)
		if left := time.Until(time.Unix(at, 0)) - expires; err != nil || left < time.Hour-time.Minute || left > time.Hour+5*time.Second {
			t.Errorf("%s: the item is deleted %v after its record expires, error %v", name, left, err)
		}
	})
}

func TestStore_ARecordThatCanNotBeReadIsOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	whole := stored(t, client, id)
	head := whole["head"].(*types.AttributeValueMemberB).Value
	with := func(name string, v types.AttributeValue) item {
		i := item{}
		for n, a := range whole {
			i[n] = a
		}
		if i[name] = v; v == nil {
			delete(i, name)
		}
		return i
	}
	edited := func(at int, b byte) item {
		d := bytes.Clone(head)
		d[at] = b
		return with("head", &types.AttributeValueMemberB{Value: d})
	}
	for name, damaged := range map[string]item{
		"cut in the head":          with("head", &types.AttributeValueMemberB{Value: head[:40]}),
		"cut behind it":            with("head", &types.AttributeValueMemberB{Value: head[:80]}),
		"another version":          edited(0, '2'),
		"no such state":            edited(1, 'X'),
		"a part of wrong length":   edited(64, 0xff),
		"no rest":                  with("rest", nil),
		"a rest of another type":   with("rest", &types.AttributeValueMemberS{Value: "text"}),
		"pieces that are missing":  with("pieces", &types.AttributeValueMemberS{Value: "ABC 1 20 0"}),
		"pieces that are no place": with("pieces", &types.AttributeValueMemberS{Value: "ABC 999999 20 0"}),
		"no revision":              func() item { i := edited(0, '2'); delete(i, "revision"); return i }(),
	} {
		put(t, client, damaged)
		listed := 0
		for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
			if listed++; err != nil || !r.Corrupt {
				t.Errorf("%s: listed %+v, error %v", name, r, err)
			}
		}
		if listed != 1 {
			t.Errorf("%s: listed %d records, want 1", name, listed)
		}
		hazard.CheckCorrupt(t, s, name, id)
	}
}

func TestStore_AFenceIncreasesAlthoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	hazard.CheckFences(t, s, func(id onlyonce.ID, fence int64) {
		i := stored(t, client, id)
		binary.BigEndian.PutUint64(i["head"].(*types.AttributeValueMemberB).Value[19:], uint64(fence))
		put(t, client, i)
	})
}
