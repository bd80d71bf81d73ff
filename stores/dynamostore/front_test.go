package dynamostore_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// A front is a fake between a store and an emulator. It adds what the emulator lacks, and
// what goes wrong in DynamoDB.
type front struct {
	to string

	requests atomic.Int64
	oldItems atomic.Int64 // that were returned with a failed condition

	mu   sync.Mutex
	rng  *rand.Rand
	fail func(rng *rand.Rand, operation string) string // the code of an error instead of a response; "": none
	lose func(rng *rand.Rand, operation string) bool   // the response, after the request took effect
	date func(rng *rand.Rand, date time.Time) time.Time
}

func newFront(t *testing.T, to *dynalite.Server) (*front, *dynamodb.Client) {
	t.Helper()
	f := &front{to: "http://" + to.Address, rng: rand.New(rand.NewPCG(1, 2))}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, connect(t, strings.TrimPrefix(server.URL, "http://"))
}

// failure, loses and dated decide what goes wrong with a request.
func (f *front) failure(operation string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		return ""
	}
	return f.fail(f.rng, operation)
}

func (f *front) loses(operation string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lose != nil && f.lose(f.rng, operation)
}

func (f *front) dated(date time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.date == nil {
		return date
	}
	return f.date(f.rng, date)
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if code := f.failure(operation); code != "" {
		w.Header().Set("X-Amzn-Requestid", "fake")
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		status := http.StatusBadRequest
		if code == "InternalServerError" {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": "fake"})
		return
	}
	response, answer, err := f.send(r, r.Header.Get("X-Amz-Target"), body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if f.loses(operation) {
		panic(http.ErrAbortHandler)
	}
	if response.StatusCode == http.StatusBadRequest && bytes.Contains(answer, []byte("ConditionalCheckFailedException")) {
		answer = f.withOldItem(r, body, answer)
	}
	for _, name := range []string{"Content-Type", "X-Amzn-Requestid", "Date"} {
		w.Header().Set(name, response.Header.Get(name))
	}
	if date, err := http.ParseTime(w.Header().Get("Date")); err == nil {
		w.Header().Set("Date", f.dated(date).UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(response.StatusCode)
	_, _ = w.Write(answer)
}

// send sends a request to the emulator.
func (f *front) send(r *http.Request, target string, body []byte) (*http.Response, []byte, error) {
	// The request goes on although its client has left, as in DynamoDB.
	out, err := http.NewRequest(http.MethodPost, f.to, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Accept-Encoding")
	out.Header.Set("X-Amz-Target", target)
	response, err := http.DefaultClient.Do(out)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response, answer, err
}

// withOldItem adds the item to the error of a failed condition, if the request wants it.
func (f *front) withOldItem(r *http.Request, body, answer []byte) []byte {
	var put struct {
		TableName                           string
		ReturnValuesOnConditionCheckFailure string
		Item                                map[string]json.RawMessage
	}
	if json.Unmarshal(body, &put) != nil || put.ReturnValuesOnConditionCheckFailure != "ALL_OLD" {
		return answer
	}
	get, _ := json.Marshal(map[string]any{"TableName": put.TableName, "ConsistentRead": true, "Key": map[string]any{"pk": put.Item["pk"]}})
	_, found, err := f.send(r, "DynamoDB_20120810.GetItem", get)
	var got struct{ Item json.RawMessage }
	var failed map[string]any
	if err != nil || json.Unmarshal(found, &got) != nil || got.Item == nil || json.Unmarshal(answer, &failed) != nil {
		return answer
	}
	f.oldItems.Add(1)
	failed["Item"] = got.Item
	whole, _ := json.Marshal(failed)
	return whole
}

// throttling rejects two of three requests.
func throttling(rng *rand.Rand, _ string) string {
	return []string{"ProvisionedThroughputExceededException", "ThrottlingException", ""}[rng.IntN(3)]
}

func TestStore_KeepsTheRulesThroughFaults(t *testing.T) {
	t.Parallel()
	f, client := newFront(t, dynalite.Start(t))
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		// While a store is opened, nothing goes wrong, so that opening many is quick.
		f.mu.Lock()
		f.fail, f.lose = nil, nil
		f.mu.Unlock()
		s := open(t, client, newTable(t, client))
		f.mu.Lock()
		f.fail = func(rng *rand.Rand, _ string) string {
			switch rng.IntN(40) {
			case 0:
				return "ThrottlingException"
			case 1:
				return "TransactionConflictException"
			}
			return "" // after an internal error, a call may be in doubt where the rules want ErrLost
		}
		f.mu.Unlock()
		return s
	})
	if f.oldItems.Load() == 0 {
		t.Error("no failed condition has returned the item")
	}
}

func TestStore_ARequestThatDynamoDBCannotServeIsRepeated(t *testing.T) {
	t.Parallel()
	f, client := newFront(t, dynalite.Start(t))
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{Timeout: 5 * time.Minute})
	for name, fail := range map[string]func(rng *rand.Rand, operation string) string{
		"throttled": throttling,
		"an internal error": func(rng *rand.Rand, _ string) string {
			return []string{"InternalServerError", ""}[rng.IntN(2)] // nothing has changed, which the store can't know
		},
	} {
		f.mu.Lock()
		f.fail = fail
		f.mu.Unlock()
		for _, key := range []string{"a", "b", "c"} {
			id := hazard.Run(t, s, name+" "+key)
			if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
				t.Errorf("%s: the record is %+v, error %v", name, r, err)
			}
		}
	}
}

func TestStore_ThrottlingThatGoesOnIsAnErrorAndChangesNothing(t *testing.T) {
	t.Parallel()
	f, client := newFront(t, dynalite.Start(t))
	migrate(t, client, dynamostore.Config{})
	const timeout = 2 * time.Second
	s := open(t, client, dynamostore.Config{Timeout: timeout})
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.fail = func(*rand.Rand, string) string { return "ProvisionedThroughputExceededException" }
	f.mu.Unlock()
	before := f.requests.Load()
	err = s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
	if err == nil || !strings.Contains(err.Error(), "ProvisionedThroughputExceededException") {
		t.Errorf("settle: %v", err)
	}
	if n := f.requests.Load() - before; n > 10 { // after 12, 25, 50, 100, 200, 400 ms, and then each 500 ms, at the earliest
		t.Errorf("%d requests were sent in %v", n, timeout)
	}
	f.mu.Lock()
	f.fail = nil
	f.mu.Unlock()
	if now, err := open(t, client, dynamostore.Config{}).Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing {
		t.Errorf("the record is %+v, error %v", now, err)
	}
}

// Responses are lost after their requests took effect, and what is lost was not done twice.
func TestStore_LostResponsesDoubleNothing(t *testing.T) {
	t.Parallel()
	f, client := newFront(t, dynalite.Start(t))
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{Timeout: 5 * time.Minute})
	f.mu.Lock()
	f.lose = func(rng *rand.Rand, operation string) bool { return rng.IntN(3) == 0 }
	f.mu.Unlock()
	var running sync.WaitGroup
	var granted [20]atomic.Int64
	for range 4 {
		running.Go(func() {
			for n := range granted {
				c := hazard.Claim(string(rune('a' + n)))
				r, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				if r.Owner == c.Owner && r.State == onlyonce.StateProcessing {
					granted[n].Add(1)
					if err := s.Renew(t.Context(), hazard.Hold(r), 10*time.Minute, map[string][]byte{"a": []byte("1")}); err != nil {
						t.Error(err)
					}
					if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	running.Wait()
	for n := range granted {
		if got := granted[n].Load(); got != 1 {
			t.Errorf("command %d was granted %d times", n, got)
		}
	}
}

// A Date that jumps shows that the process was suspended. What is written by the old clock is
// written again, so that no other process sees a lease that is too short.
func TestStore_AProcessThatWasSuspendedGivesWholeLeases(t *testing.T) {
	t.Parallel()
	emulator := dynalite.Start(t)
	f, client := newFront(t, emulator)
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{})
	renewed, err := s.Claim(t.Context(), hazard.Claim("renewed"))
	if err != nil {
		t.Fatal(err)
	}
	settled, err := s.Claim(t.Context(), hazard.Claim("settled"))
	if err != nil {
		t.Fatal(err)
	}
	var ahead time.Duration
	for name, call := range map[string]func() error{
		"claimed": func() error { _, err := s.Claim(t.Context(), hazard.Claim("claimed")); return err },
		"renewed": func() error { return s.Renew(t.Context(), hazard.Hold(renewed), 10*time.Minute, nil) },
		"settled": func() error { return s.Settle(t.Context(), hazard.Hold(settled), hazard.Completed) },
	} {
		f.mu.Lock()
		ahead += 5 * time.Minute
		jump := ahead
		f.date = func(_ *rand.Rand, date time.Time) time.Time { return date.Add(jump) }
		f.mu.Unlock()
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r, err := open(t, client, dynamostore.Config{}).Lookup(t.Context(), hazard.Claim(name).ID)
		if left := max(r.LeaseLeft, r.KeepLeft); err != nil || left < 9*time.Minute {
			t.Errorf("%s: another process sees that %v are left, error %v", name, left, err)
		}
		if name == "settled" && r.KeepLeft < 59*time.Minute {
			t.Errorf("%s: another process sees that %v are left", name, r.KeepLeft)
		}
	}
}

func TestStore_DatesThatContradictEachOtherAreAnError(t *testing.T) {
	t.Parallel()
	f, client := newFront(t, dynalite.Start(t))
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{Timeout: 2 * time.Second})
	n := 0
	f.mu.Lock()
	f.date = func(_ *rand.Rand, date time.Time) time.Time {
		n++
		return date.Add(time.Duration(n%2) * time.Minute)
	}
	f.mu.Unlock()
	if r, err := s.Claim(t.Context(), hazard.Claim("k")); err == nil || !strings.Contains(err.Error(), "the Date of one of DynamoDB's responses is off by") {
		t.Errorf("claim got %+v, error %v", r, err)
	}
}
