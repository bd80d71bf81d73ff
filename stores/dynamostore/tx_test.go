package dynamostore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// rowsOf makes a table for the callers' items, and returns how to add to and count them.
func rowsOf(t *testing.T, client *dynamodb.Client, store *dynamostore.Store, name string) storetest.Tx[*dynamostore.Tx] {
	t.Helper()
	if _, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("row"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("row"), KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	return storetest.Tx[*dynamostore.Tx]{
		Store: store,
		Insert: func(_ context.Context, tx *dynamostore.Tx, row string) error {
			return tx.Update(types.Update{
				TableName: &name, Key: item{"row": s(row)}, UpdateExpression: aws.String("ADD made :one"),
				ExpressionAttributeValues: item{":one": n(1)},
			})
		},
		Count: func(ctx context.Context, row string) (int, error) { return countOf(ctx, client, name, row) },
	}
}

func TestStore_KeepsTheRulesOfTransactions(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]dynamofake.Faults{"without faults": {}, "through faults": {Fail: hindering}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, client := fake(t)
			storetest.RunTx(t, func(t *testing.T) storetest.Tx[*dynamostore.Tx] {
				f.Inject(dynamofake.Faults{})
				cfg := newTable(t, client)
				tx := rowsOf(t, client, open(t, client, cfg), cfg.Table+"-rows")
				f.Inject(faults)
				return tx
			})
		})
	}
}

// A lossyWay is the way of one client to DynamoDB, on which a transaction can be lost.
type lossyWay struct {
	http.RoundTripper

	mu        sync.Mutex
	armed     bool
	arrives   bool
	rejects   bool   // until the store does something else
	meanwhile func() // is called once
}

// RoundTrip loses a transaction. If it does not arrive, DynamoDB rejects it whenever it is sent
// again, so that the store rolls it back and does not wait for its timeout.
func (w *lossyWay) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	armed, arrives, rejects, meanwhile := w.armed, w.arrives, w.rejects, w.meanwhile
	commits := strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems")
	switch {
	case armed && commits:
		w.armed, w.rejects = false, !arrives
	case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateItem"):
		w.rejects = false
	}
	w.mu.Unlock()
	switch {
	case armed && commits:
	case rejects && commits:
		return &http.Response{
			StatusCode: http.StatusBadRequest, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"__type":"AccessDeniedException"}`)),
		}, nil
	default:
		return w.RoundTripper.RoundTrip(r)
	}
	if arrives {
		if response, err := w.RoundTripper.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}
	if meanwhile != nil {
		meanwhile()
	}
	return nil, errors.New("the connection was cut")
}

func TestStore_ACommitWhoseResponseIsLostIsNotMistaken(t *testing.T) {
	t.Parallel()
	_, client := fake(t)
	storetest.RunLostCommits(t, func(t *testing.T) storetest.LossyTx[*dynamostore.Tx] {
		cfg := newTable(t, client)
		cfg.ClockSkew = 100 * time.Millisecond
		way := &lossyWay{RoundTripper: http.DefaultTransport}
		lossy := dynamodb.New(client.Options(), func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: way} })
		tx := rowsOf(t, client, open(t, lossy, cfg), cfg.Table+"-rows")
		return storetest.LossyTx[*dynamostore.Tx]{
			Tx: tx, Elsewhere: open(t, client, cfg),
			LoseCommit: func(arrives bool, meanwhile func()) {
				way.mu.Lock()
				defer way.mu.Unlock()
				way.armed, way.arrives = true, arrives
				way.meanwhile = func() {
					if !arrives {
						lapseLocks(t, client, cfg.Table)
					}
					meanwhile()
				}
			},
		}
	})
}

// lapseLocks makes the leases of all locks of a table lapse.
func lapseLocks(t *testing.T, client *dynamodb.Client, table string) {
	t.Helper()
	found, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range found.Items {
		l, ok := i["lock"].(*types.AttributeValueMemberB)
		if !ok || binary.BigEndian.Uint64(l.Value[32:]) == 0 {
			continue
		}
		began := binary.BigEndian.Uint64(l.Value[24:])
		binary.BigEndian.PutUint64(l.Value[24:], began-uint64(time.Hour.Microseconds()))
		if _, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: &table, Key: item{"pk": i["pk"]}, UpdateExpression: aws.String("SET #l = :l"),
			ExpressionAttributeNames: map[string]string{"#l": "lock"}, ExpressionAttributeValues: item{":l": l},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// transacted returns a fake, and a store on it with a table of the callers' items.
func transacted(t *testing.T) (*dynamofake.Server, *dynamodb.Client, *dynamostore.Store) {
	t.Helper()
	f, client := fake(t)
	migrate(t, client, dynamostore.Config{})
	store := open(t, client, dynamostore.Config{})
	rowsOf(t, client, store, "rows")
	return f, client, store
}

type inTx = func(context.Context, *dynamostore.Tx, onlyonce.Record) (onlyonce.Settlement, error)

// puts returns a function that adds rows that must not be there, and completes.
func puts(rows ...string) inTx {
	return func(_ context.Context, tx *dynamostore.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		for _, row := range rows {
			if err := tx.Put(types.Put{
				TableName: aws.String("rows"), Item: item{"row": s(row), "made": n(1)}, ConditionExpression: aws.String("attribute_not_exists(made)"),
			}); err != nil {
				return onlyonce.Settlement{}, err
			}
		}
		return hazard.Completed, nil
	}
}

func settleTx(t *testing.T, s *dynamostore.Store, r onlyonce.Record, fn inTx) error {
	return s.SettleTx(t.Context(), hazard.Hold(r), func(ctx context.Context, tx *dynamostore.Tx) (onlyonce.Settlement, error) { return fn(ctx, tx, r) })
}

func runTx(t *testing.T, s *dynamostore.Store, key string, fn inTx) error {
	_, err := s.RunTx(t.Context(), hazard.Claim(key), fn)
	return err
}

func mustClaim(t *testing.T, s *dynamostore.Store, c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r, err := s.Claim(t.Context(), c)
	if err != nil || r.Owner != c.Owner {
		t.Fatalf("claim got %+v, error %v", r, err)
	}
	return r
}

func wantRows(t *testing.T, client *dynamodb.Client, want int, rows ...string) {
	t.Helper()
	for _, row := range rows {
		if n, err := countOf(t.Context(), client, "rows", row); n != want || err != nil {
			t.Errorf("the row %q was made %d times, want %d, error %v", row, n, want, err)
		}
	}
}

// wantReasons wants the error of a transaction whose conditions were not met to say which.
func wantReasons(t *testing.T, err error, want ...string) {
	t.Helper()
	var failed *types.TransactionCanceledException
	if !errors.As(err, &failed) || errors.Is(err, onlyonce.ErrUnknown) {
		t.Fatalf("the error is %v", err)
	}
	var got []string
	for _, r := range failed.CancellationReasons {
		got = append(got, aws.ToString(r.Code))
	}
	if !slices.Equal(got, append(want, "None")) {
		t.Errorf("the reasons are %q, want %q and that of the record", got, want)
	}
}

func TestTx_AConditionThatIsNotMetIsTheCallersErrorAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	_, client, store := transacted(t)
	if err := runTx(t, store, "first", puts("taken")); err != nil {
		t.Fatal(err)
	}
	var fence int64
	err := runTx(t, store, "k", func(ctx context.Context, in *dynamostore.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		fence = r.Fence
		return puts("free", "taken", "free too")(ctx, in, r)
	})
	wantReasons(t, err, "None", "ConditionalCheckFailed", "None")
	wantRows(t, client, 0, "free", "free too")
	if r, err := store.Lookup(t.Context(), hazard.Claim("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("the record is %+v, error %v", r, err)
	}
	r := mustClaim(t, store, hazard.Claim("k"))
	if r.Attempt != 1 || r.Fence <= fence {
		t.Errorf("the next claim got %+v after fence %d", r, fence)
	}
	wantReasons(t, settleTx(t, store, r, puts("taken")), "ConditionalCheckFailed")
	if err := settleTx(t, store, r, puts("free")); err != nil {
		t.Error(err)
	}
	wantRows(t, client, 1, "taken", "free")
}

// A transaction whose response is lost is sent again: its conditions are not met then, because
// of what it has written itself.
func TestTx_ItsOwnItemsDoNotStandAgainstATransactionThatIsSentAgain(t *testing.T) {
	t.Parallel()
	f, client, store := transacted(t)
	held := mustClaim(t, store, hazard.Claim("settled"))
	for row, call := range map[string]func() error{
		"run":     func() error { return runTx(t, store, "run", puts("run")) },
		"settled": func() error { return settleTx(t, store, held, puts("settled")) },
	} {
		lost := 0
		f.Inject(dynamofake.Faults{Lose: func(_ *rand.Rand, operation string) bool {
			if operation == "TransactWriteItems" {
				lost++
			}
			return operation == "TransactWriteItems" && lost == 1
		}})
		if err := call(); err != nil || lost == 0 {
			t.Errorf("%s: %v; %d responses were lost", row, err, lost)
		}
		wantRows(t, client, 1, row)
	}
}

// The next try of a transaction whose response was lost is rejected for another reason. That
// does not tell whether the first one took effect.
func TestTx_ARejectionAfterALostResponseDoesNotSayThatNothingWasWritten(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"it arrived": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, client, store := transacted(t)
			held := mustClaim(t, store, hazard.Claim("settled"))
			for row, call := range map[string]func() error{
				"run":     func() error { return runTx(t, store, "run", puts("run")) },
				"settled": func() error { return settleTx(t, store, held, puts("settled")) },
			} {
				sent, reads := 0, 0
				f.Inject(dynamofake.Faults{
					Lose: func(_ *rand.Rand, operation string) bool {
						return operation == "TransactWriteItems" && sent == 1 && arrives
					},
					Fail: func(_ *rand.Rand, operation string) string {
						switch {
						case operation == "GetItem" && sent == 1 && reads == 0:
							reads++
							return "AccessDeniedException" // so that the call ends while it is in doubt
						case operation == "TransactWriteItems":
							if sent++; sent == 1 && !arrives {
								return "InternalServerError"
							}
						}
						return ""
					},
				})
				err := call()
				if arrives != (err == nil) || errors.Is(err, onlyonce.ErrUnknown) || reads != 1 {
					t.Errorf("%s: %v; %d reads were rejected", row, err, reads)
				}
				wantRows(t, client, map[bool]int{true: 1}[arrives], row)
			}
		})
	}
}

func TestTx_WhatDynamoDBRejectsIsAnErrorAndReleasesTheCommand(t *testing.T) {
	t.Parallel()
	f, client, store := transacted(t)
	f.MostBytes = 1 << 20 // more would take longer than one request may, on a busy machine under the race detector
	var many []string
	for i := range dynamostore.MostItems {
		many = append(many, fmt.Sprint(i))
	}
	var late *dynamostore.Tx
	for name, c := range map[string]struct {
		fn   inTx
		want string
	}{
		"too many":  {puts(append(many, "one more")...), "has 99 already"},
		"one twice": {puts("twice", "twice"), "multiple operations on one item"},
		"another table": {func(_ context.Context, in *dynamostore.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			return hazard.Completed, in.Delete(types.Delete{TableName: aws.String("none"), Key: item{"row": s("a")}})
		}, "ResourceNotFoundException"},
		"the store's own table": {func(_ context.Context, in *dynamostore.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			late = in
			return onlyonce.Settlement{}, in.Check(types.ConditionCheck{TableName: table, Key: item{"pk": s("made")}})
		}, "is the store's own"},
		"too much": {func(_ context.Context, in *dynamostore.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			for i := range 3 {
				large := &types.AttributeValueMemberB{Value: make([]byte, 390<<10)}
				if err := in.Put(types.Put{TableName: aws.String("rows"), Item: item{"row": s(fmt.Sprint("large", i)), "data": large}}); err != nil {
					return onlyonce.Settlement{}, err
				}
			}
			return settlementOf(500 << 10), nil
		}, "exceeds the limit"},
	} {
		if err := runTx(t, store, name, c.fn); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, onlyonce.ErrUnknown) || errors.Is(err, dynamostore.ErrForgotten) {
			t.Errorf("%s: %v", name, err)
		}
		if err := runTx(t, store, name, puts("then "+name)); err != nil {
			t.Errorf("%s: then %v", name, err)
		}
		wantRows(t, client, 1, "then "+name)
	}
	if err := late.Put(types.Put{TableName: aws.String("rows")}); err == nil {
		t.Error("an item was added after the function had returned")
	}
	if left := keys(t, client, "p/"); len(left) > 0 {
		t.Errorf("%d pieces are left of a settlement that was rejected", len(left))
	}
	wantRows(t, client, 0, many...)
	if err := runTx(t, store, "most", puts(many...)); err != nil {
		t.Error(err)
	}
	wantRows(t, client, 1, many...)
}

// The lock of a process that has died ends with its lease, and leaves the record as it was.
func TestTx_AProcessThatDiesLeavesTheRecordAsItWas(t *testing.T) {
	t.Parallel()
	_, client, store := transacted(t)
	other := open(t, client, dynamostore.Config{})
	failed := mustClaim(t, other, hazard.Claim("failed"))
	if err := other.Settle(t.Context(), hazard.Hold(failed), onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no stock"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new", "failed"} {
		before, beforeErr := other.Lookup(t.Context(), hazard.Claim(name).ID)
		retry := func() onlyonce.Claim {
			c := hazard.Claim(name)
			c.RetryFailed = true
			return c
		}
		var lost onlyonce.Record
		hang, hanging := make(chan struct{}), make(chan struct{})
		done := make(chan error)
		go func() {
			_, err := store.RunTx(t.Context(), retry(), func(ctx context.Context, in *dynamostore.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
				lost = r
				close(hanging)
				<-hang
				return puts("late "+name)(ctx, in, r)
			})
			done <- err
		}()
		<-hanging
		for what, next := range map[string]func(c onlyonce.Claim) (onlyonce.Record, error){
			"claim": func(c onlyonce.Claim) (onlyonce.Record, error) { return other.Claim(t.Context(), c) },
			"run":   func(c onlyonce.Claim) (onlyonce.Record, error) { return other.RunTx(t.Context(), c, puts("never")) },
		} {
			again := retry()
			again.TakeUnknown = true
			if r, err := next(again); err != nil || r.State != onlyonce.StateProcessing || r.Owner != "" || r.LeaseLeft <= 0 || r.Attempt != lost.Attempt {
				t.Errorf("%s: a %s during the transaction got %+v, error %v", name, what, r, err)
			}
		}
		lapseLocks(t, client, dynamostore.DefaultTable)
		if after, err := other.Lookup(t.Context(), failed.ID); name == "failed" && (err != nil || after.State != before.State || after.Fence != before.Fence || after.Error != before.Error) {
			t.Errorf("%s: the record is %+v, error %v, and was %+v, error %v", name, after, err, before, beforeErr)
		}
		r, err := other.RunTx(t.Context(), retry(), puts(name))
		if err != nil || r.State != onlyonce.StateCompleted || r.Fence <= lost.Fence || r.Attempt != lost.Attempt {
			t.Errorf("%s: the next run got %+v after fence %d, error %v", name, r, lost.Fence, err)
		}
		close(hang)
		if err := <-done; err != nil {
			t.Errorf("%s: the late run: %v", name, err)
		}
		wantRows(t, client, 0, "late "+name, "never")
		wantRows(t, client, 1, name)
	}
}

// A hold that has lapsed may still renew, which takes the record from a transaction. The fence
// that its function has seen is not issued again.
func TestTx_ALateHoldTakesTheRecordFromATransaction(t *testing.T) {
	t.Parallel()
	_, client, store := transacted(t)
	c := hazard.Claim("k")
	c.Lease = time.Millisecond
	held := mustClaim(t, store, c)
	for r, err := held, error(nil); r.LeaseLeft > 0; {
		if r, err = store.Lookup(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
	again := hazard.Claim("k")
	again.TakeUnknown = true
	var fence int64
	r, err := store.RunTx(t.Context(), again, func(ctx context.Context, in *dynamostore.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		if fence = r.Fence; fence <= held.Fence {
			t.Errorf("the function got fence %d after %d", fence, held.Fence)
		}
		if err := store.Renew(t.Context(), hazard.Hold(held), 10*time.Minute, nil); err != nil {
			t.Error(err)
		}
		return puts("k")(ctx, in, r)
	})
	if err != nil || r.State != onlyonce.StateProcessing || r.Owner != held.Owner {
		t.Errorf("the run got %+v, error %v", r, err)
	}
	wantRows(t, client, 0, "k")
	i := stored(t, client, c.ID) // the fence must not come from the clock alone
	l := i["lock"].(*types.AttributeValueMemberB).Value
	high := fence + time.Hour.Microseconds()
	binary.BigEndian.PutUint64(l[16:], uint64(high))
	i["revision"] = &types.AttributeValueMemberB{Value: []byte("another revision")}
	put(t, client, i)
	if err := store.Settle(t.Context(), hazard.Hold(held), onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if next := mustClaim(t, store, hazard.Claim("k")); next.Fence != high+1 {
		t.Errorf("the next claim got fence %d, want %d", next.Fence, high+1)
	}
}

func TestTx_ALockThatIsDamagedIsOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	_, client, store := transacted(t)
	id := hazard.Run(t, store, "k")
	whole := stored(t, client, id)
	for _, damaged := range [][]byte{{}, []byte("cut"), make([]byte, 40)} {
		whole["lock"] = &types.AttributeValueMemberB{Value: damaged}
		put(t, client, whole)
		hazard.CheckCorrupt(t, store, fmt.Sprintf("a lock of %d bytes", len(damaged)), id)
	}
}
