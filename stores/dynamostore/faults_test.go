package dynamostore_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynamofake"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// throttling rejects two of three requests.
func throttling(rng *rand.Rand, _ string) string {
	return []string{"ProvisionedThroughputExceededException", "ThrottlingException", ""}[rng.IntN(3)]
}

// hindering rejects some requests that have changed nothing. After an internal error, a call
// may be in doubt where the rules want ErrLost.
func hindering(rng *rand.Rand, operation string) string {
	switch rng.IntN(40) {
	case 0:
		return "ThrottlingException"
	case 1:
		return "TransactionConflictException"
	}
	if operation == "TransactWriteItems" {
		return []string{"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded", "", "", ""}[rng.IntN(6)]
	}
	return ""
}

func TestStore_KeepsTheRulesThroughFaults(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	f, client := fake(t)
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		// While a store is opened, nothing goes wrong, so that opening many is quick.
		f.Inject(dynamofake.Faults{})
		s := open(t, client, newTable(t, client))
		f.Inject(dynamofake.Faults{Fail: hindering})
		return s
	})
	if f.OldItems.Load() == 0 {
		t.Error("no failed condition has returned the item")
	}
}

func TestStore_ARequestThatDynamoDBCannotServeIsRepeated(t *testing.T) {
	t.Parallel()
	f, client := fake(t)
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{Timeout: 5 * time.Minute})
	for name, fail := range map[string]func(rng *rand.Rand, operation string) string{
		"throttled": throttling,
		"an internal error": func(rng *rand.Rand, _ string) string {
			return []string{"InternalServerError", ""}[rng.IntN(2)] // nothing has changed, which the store can't know
		},
	} {
		f.Inject(dynamofake.Faults{Fail: fail})
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
	f, client := fake(t)
	migrate(t, client, dynamostore.Config{})
	const timeout = 2 * time.Second
	s, patient := open(t, client, dynamostore.Config{Timeout: timeout}), open(t, client, dynamostore.Config{})
	r, err := patient.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	f.Inject(dynamofake.Faults{Fail: func(*rand.Rand, string) string { return "ProvisionedThroughputExceededException" }})
	before := f.Requests.Load()
	err = s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
	if err == nil || !strings.Contains(err.Error(), "ProvisionedThroughputExceededException") {
		t.Errorf("settle: %v", err)
	}
	if n := f.Requests.Load() - before; n > 10 { // after 12, 25, 50, 100, 200, 400 ms, and then each 500 ms, at the earliest
		t.Errorf("%d requests were sent in %v", n, timeout)
	}
	f.Inject(dynamofake.Faults{})
	if now, err := patient.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing {
		t.Errorf("the record is %+v, error %v", now, err)
	}
}

// Responses are lost after their requests took effect, and no request whose response is lost takes effect twice.
func TestStore_LostResponsesDoubleNothing(t *testing.T) {
	t.Parallel()
	f, client := fake(t)
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{Timeout: 5 * time.Minute})
	f.Inject(dynamofake.Faults{Lose: func(rng *rand.Rand, _ string) bool { return rng.IntN(3) == 0 }})
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
	f, client := fake(t)
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
		ahead += 5 * time.Minute
		jump := ahead
		f.Inject(dynamofake.Faults{Date: func(_ *rand.Rand, date time.Time) time.Time { return date.Add(jump) }})
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
	f, client := fake(t)
	migrate(t, client, dynamostore.Config{})
	s := open(t, client, dynamostore.Config{})
	n := 0
	f.Inject(dynamofake.Faults{Date: func(_ *rand.Rand, date time.Time) time.Time {
		n++
		return date.Add(time.Duration(n%2) * time.Minute)
	}})
	if r, err := s.Claim(t.Context(), hazard.Claim("k")); err == nil || !strings.Contains(err.Error(), "the Date of one of DynamoDB's responses is off by") {
		t.Errorf("claim got %+v, error %v", r, err)
	}
}
