package bench

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func newTestStore(t *testing.T, c config) *storeTarget {
	t.Helper()
	c.resultSize, c.keys = leastResult, keysUniform
	target, err := openStoreTarget(t.Context(), &c, "memory://")
	if err != nil {
		t.Fatal(err)
	}
	return target.(*storeTarget)
}

func TestStore_AStoreInMemoryKeepsManyResponsesForAMomentOnly(t *testing.T) {
	for requests, keeps := range map[int64]time.Duration{0: time.Second, fewRequests: time.Minute, fewRequests + 1: time.Second} {
		s := newTestStore(t, config{requests: requests, keep: time.Minute})
		if s.keeps() != keeps {
			t.Errorf("%d requests: it keeps them for %v", requests, s.keeps())
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStore_ABenchDoesNotRunWhatMayHaveRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t, config{keep: time.Minute})
		keys := newTestKeys(keysUniform, 0)
		k := keys.nextKey(rand.New(rand.NewPCG(1, 2)), time.Now())
		lost := onlyonce.Claim{ID: onlyonce.ID{Tenant: s.tenant, Operation: "bench", Key: k.name}, Owner: "died", SkipFingerprint: true, Lease: time.Second}
		if _, err := s.store.Claim(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		if o, err := s.send(t.Context(), k); o != outcomeInFlight || err != nil {
			t.Errorf("while it runs: %v, %v", o, err)
		}
		time.Sleep(2 * time.Second)
		if o, err := s.send(t.Context(), k); o != outcomeFailed || err == nil || k.runs != 0 {
			t.Errorf("when its lease has lapsed: %v, %v, and it ran %d times", o, err, k.runs)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
}
