package dynamostore_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynalite"
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

func TestStore_ATableThatHasForgottenRunsNoNewCommand(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	for name, forget := range map[string]func(){
		"the table is gone": func() {
			if _, err := client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: table}); err != nil {
				t.Fatal(err)
			}
		},
		"the table is empty": func() {
			for _, key := range keys(t, client, "") {
				remove(t, client, key)
			}
		},
	} {
		id := hazard.Run(t, s, "before")
		forget()
		for n := 0; ; n++ { // within a second, a claim may still be granted
			_, err := s.Claim(t.Context(), hazard.Claim(fmt.Sprint(name, n)))
			if errors.Is(err, dynamostore.ErrForgotten) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if r, err := s.Claim(t.Context(), hazard.Claim("before")); !errors.Is(err, dynamostore.ErrForgotten) {
			t.Errorf("%s: claim got %v and error %v", name, r, err)
		}
		if _, err := s.Lookup(t.Context(), hazard.Claim("another").ID); !errors.Is(err, dynamostore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup: %v", name, err)
		}
		if _, err := dynamostore.Open(t.Context(), client, emulated(dynamostore.Config{})); err == nil || !strings.Contains(err.Error(), "forgotten: ") {
			t.Errorf("%s: open: %v", name, err)
		}
		migrate(t, client, dynamostore.Config{})
		if _, err := s.Lookup(t.Context(), id); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup after Migrate: %v", name, err)
		}
	}
}

func TestStore_MigratingAgainForgetsNothing(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	if made, err := dynamostore.Migrate(t.Context(), client, emulated(dynamostore.Config{})); made || err != nil {
		t.Errorf("made %v, error %v", made, err)
	}
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
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

func settlementOf(size int) onlyonce.Settlement {
	st := hazard.Completed
	st.Result.Body = bytes.Repeat([]byte("0123456789abcdef"), size/16)
	return st
}

func TestStore_ALargeResultIsReplayedWhole(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	for name, size := range map[string]int{"one item": 380 << 10, "two pieces": 500 << 10, "many pieces": 6<<20 + 16} {
		c := hazard.Claim(name)
		r, err := s.Claim(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		st := settlementOf(size)
		if err := s.Renew(t.Context(), hazard.Hold(r), time.Minute, map[string][]byte{"a": st.Result.Body[:size/3]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Renew(t.Context(), hazard.Hold(r), 10*time.Minute, map[string][]byte{"b": st.Result.Body[:size/3]}); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), st); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for name, s := range map[string]*dynamostore.Store{"the process": s, "another": open(t, client, dynamostore.Config{})} {
			if r, err := s.Claim(t.Context(), hazard.Claim(c.ID.Key)); err != nil || !bytes.Equal(r.Result.Body, st.Result.Body) || len(r.Steps["b"]) != size/3 || len(r.Steps["a"]) != size/3 {
				t.Errorf("%s: a repeat got %d bytes, error %v", name, len(r.Result.Body), err)
			}
		}
		now, err := s.Lookup(t.Context(), c.ID)
		if err == nil {
			err = s.Resolve(t.Context(), now, onlyonce.Settlement{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if left := keys(t, client, "p/"); len(left) > 0 {
			t.Errorf("%s: %d pieces are left of a record that is deleted", name, len(left))
		}
	}
}

// Pieces that a late attempt has written before it finds that it is lost must not stay.
func TestStore_ALateLargeResultLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, client, dynamostore.Config{}).Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(r), settlementOf(2<<20)); !errors.Is(err, onlyonce.ErrLost) {
		t.Errorf("settle: %v", err)
	}
	if left := keys(t, client, "p/"); len(left) > 0 {
		t.Errorf("%d pieces are left", len(left))
	}
}

func TestStore_ARecordThatIsTooLargeIsRejectedAndChangesNothing(t *testing.T) {
	t.Parallel()
	_, _, s := migrated(t)
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	large := settlementOf(16<<20 + 16)
	if err := s.Settle(t.Context(), hazard.Hold(r), large); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("settle: %v", err)
	}
	if err := s.Renew(t.Context(), hazard.Hold(r), time.Minute, map[string][]byte{"a": large.Result.Body}); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("renew: %v", err)
	}
	id := hazard.Claim(strings.Repeat("k", 64<<10))
	if _, err := s.Claim(t.Context(), id); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("claim: %v", err)
	}
	if now, err := s.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing || now.Fence != r.Fence {
		t.Errorf("the record is %+v, error %v", now, err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
		t.Errorf("settle with less: %v", err)
	}
}

// A call whose confirmation is lost finds its own change when it looks.
func TestStore_ACallWhoseConfirmationIsLostTakesEffectOnce(t *testing.T) {
	t.Parallel()
	server, direct, observer := migrated(t)
	failed := onlyonce.Settlement{State: onlyonce.StateFailed}
	for name, call := range map[string]func(*testing.T, *dynamostore.Store, onlyonce.Record) error{
		"claim": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			c := hazard.Claim("claim")
			c.RetryFailed = true
			now, err := s.Claim(t.Context(), c)
			if now.Owner != c.Owner || now.Attempt != 2 || now.Fence <= r.Fence {
				t.Errorf("the claim got %+v", now)
			}
			return err
		},
		"renew": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a": []byte("1")})
		},
		"settle": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
		},
		"release": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{})
		},
		"resolve": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, hazard.Completed)
		},
		"delete": func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateFailed
			return s.Resolve(t.Context(), r, onlyonce.Settlement{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), hazard.Claim(name))
			if err == nil && (name == "claim" || name == "resolve" || name == "delete") {
				err = observer.Settle(t.Context(), hazard.Hold(r), failed)
			}
			if err != nil {
				t.Fatal(err)
			}
			revision := func() string {
				return fmt.Sprint(stored(t, direct, r.ID)["revision"].(*types.AttributeValueMemberB).Value)
			}
			before := revision()
			w := hazard.NewWay(t, server.Address)
			s := open(t, connect(t, w.Address()), dynamostore.Config{Timeout: 5 * time.Minute})

			if name == "claim" { // a first claim tries to make the record
				if _, err := s.Claim(t.Context(), hazard.Claim(name)); err != nil {
					t.Fatal(err)
				}
			}
			w.Deafen("X-Amz-Target: DynamoDB_20120810.PutItem")
			done := make(chan error, 1)
			go func() { done <- call(t, s, r) }()
			after := before
			for after == before {
				time.Sleep(time.Millisecond)
				after = revision()
			}
			w.Cut()
			w.Open()
			if err := <-done; err != nil {
				t.Errorf("the call: %v", err)
			}
			if last := revision(); name != "renew" && last != after {
				t.Error("the call was stored twice")
			}
		})
	}
}

// Once others have changed the record, a call whose confirmation was lost can't tell whether
// it took effect. It must not say that it changed nothing.
func TestStore_ACallWhoseConfirmationIsLostIsInDoubtOnceOthersHaveChangedTheRecord(t *testing.T) {
	t.Parallel()
	server, direct, observer := migrated(t)
	settle := func(t *testing.T, r onlyonce.Record, how onlyonce.Settlement) {
		t.Helper()
		if err := observer.Settle(t.Context(), hazard.Hold(r), how); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, r onlyonce.Record) {
		t.Helper()
		now, err := observer.Lookup(t.Context(), r.ID)
		if err == nil {
			err = observer.Resolve(t.Context(), now, onlyonce.Settlement{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		call   func(*testing.T, *dynamostore.Store, onlyonce.Record) error
		others func(*testing.T, onlyonce.Record)
	}{
		"renew": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a": []byte("1")})
		}, func(t *testing.T, r onlyonce.Record) { settle(t, r, hazard.Completed) }},
		"settle": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
		}, remove},
		"release": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{})
		}, func(t *testing.T, r onlyonce.Record) { hazard.Run(t, observer, r.ID.Key) }},
		"resolve": {func(t *testing.T, s *dynamostore.Store, r onlyonce.Record) error {
			r.State = onlyonce.StateUnknown
			return s.Resolve(t.Context(), r, hazard.Completed)
		}, remove},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), hazard.Claim(name))
			if err != nil {
				t.Fatal(err)
			}
			if name == "resolve" {
				settle(t, r, onlyonce.Settlement{State: onlyonce.StateUnknown})
			}
			revision := func() string {
				return fmt.Sprint(stored(t, direct, r.ID)["revision"].(*types.AttributeValueMemberB).Value)
			}
			before := revision()
			w := hazard.NewWay(t, server.Address)
			s := open(t, connect(t, w.Address()), dynamostore.Config{Timeout: 5 * time.Minute})
			w.Deafen("X-Amz-Target: DynamoDB_20120810.PutItem")
			done := make(chan error, 1)
			go func() { done <- c.call(t, s, r) }()
			for revision() == before {
				time.Sleep(time.Millisecond)
			}
			c.others(t, r)
			w.Cut()
			w.Open()
			if err := <-done; err == nil || errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("the call: %v", err)
			}
		})
	}
}

// Of many stores, as many processes have them, each take-over of a command goes to one, and
// only that one can settle.
func TestStore_ACommandThatLapsesGoesFromProcessToProcess(t *testing.T) {
	t.Parallel()
	address := dynalite.Start(t).Address
	client := connect(t, address)
	migrate(t, client, dynamostore.Config{})
	const processes, takeOvers = 4, 6
	var mu sync.Mutex
	var holds []onlyonce.Hold
	var settled atomic.Int64
	var running sync.WaitGroup
	for range processes {
		s := open(t, connect(t, address), dynamostore.Config{})
		for range 4 {
			running.Go(func() {
				for settled.Load() == 0 {
					c := hazard.Claim("k")
					c.Lease, c.TakeUnknown = time.Millisecond, true
					r, err := s.Claim(t.Context(), c)
					switch {
					case err != nil:
						t.Error(err)
						return
					case r.Owner != c.Owner:
						continue
					}
					mu.Lock()
					holds = append(holds, hazard.Hold(r))
					last := len(holds) >= takeOvers
					mu.Unlock()
					if !last {
						continue
					}
					switch err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); {
					case err == nil:
						settled.Add(1)
					case !errors.Is(err, onlyonce.ErrLost):
						t.Error(err)
					}
				}
			})
		}
	}
	running.Wait()
	if n := settled.Load(); n != 1 {
		t.Errorf("%d attempts could settle", n)
	}
	slices.SortFunc(holds, func(a, b onlyonce.Hold) int { return int(a.Fence - b.Fence) })
	for i := range holds[1:] {
		if holds[i].Fence == holds[i+1].Fence {
			t.Errorf("two attempts have the fence %d", holds[i].Fence)
		}
	}
	s := open(t, client, dynamostore.Config{})
	if r, err := s.Lookup(t.Context(), holds[0].ID); err != nil || r.Attempt != len(holds) {
		t.Errorf("of %d claims that were granted, the last is attempt %d, error %v", len(holds), r.Attempt, err)
	}
}

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
