package onlyonce_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestCache_AResultIsReplayedForTheMaximumAgeAndNoLonger(t *testing.T) {
	for name, c := range map[string]struct {
		set, age time.Duration
		change   func(onlyonce.Settlement) onlyonce.Settlement
	}{
		"deleted":       {0, onlyonce.DefaultCacheMaxAge, func(onlyonce.Settlement) onlyonce.Settlement { return onlyonce.Settlement{} }},
		"deleted, set":  {3 * time.Second, 3 * time.Second, func(onlyonce.Settlement) onlyonce.Settlement { return onlyonce.Settlement{} }},
		"resolved anew": {0, onlyonce.DefaultCacheMaxAge, func(s onlyonce.Settlement) onlyonce.Settlement { s.Result.Body = []byte(`"resolved"`); return s }},
		"made to be rerun": {0, onlyonce.DefaultCacheMaxAge, func(onlyonce.Settlement) onlyonce.Settlement {
			return onlyonce.Settlement{State: onlyonce.StateFailed, Keep: time.Hour}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCountedStore()
				cfg := caching
				cfg.CacheMaxAge = c.set
				g := onlyonce.New(s, cfg)
				mustDo(t, g, request("k"), "made")
				s.change(t, request("k").ID, c.change(onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}))
				for passed := time.Duration(0); passed < c.age; passed += 500 * time.Millisecond {
					if a := mustDo(t, g, request("k"), "again"); a.Value != "made" {
						t.Errorf("after %v, the response is %+v", passed, a)
					}
					time.Sleep(500 * time.Millisecond)
				}
				if a := mustDo(t, g, request("k"), "again"); a.Value == "made" {
					t.Errorf("after %v, the response is still %+v", c.age, a)
				}
			})
		})
	}
}

// change changes a settled record as a person's decision does, in another process.
func (s *simStore) change(t *testing.T, id onlyonce.ID, st onlyonce.Settlement) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	if r == nil {
		t.Fatal("there is no record")
	}
	changed := *r
	s.fence++
	changed.Owner, changed.Fence = fmt.Sprintf("decision %07d", s.fence%1e7), s.fence
	s.end(&changed, st)
}

// TestCache_ARecordIsNotReplayedPastItsKeep wants the store to be asked from three quarters of
// the Keep on, and nothing to be kept whose response took longer than that.
func TestCache_ARecordIsNotReplayedPastItsKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore()
		g := onlyonce.New(s, caching)
		req := request("k")
		req.Keep = 4 * time.Second
		mustDo(t, g, req, "made")
		time.Sleep(3*time.Second - 1)
		if s.asked(func() { mustDo(t, g, req, "again") }) {
			t.Error("the store was asked before three quarters of the Keep")
		}
		a, err := g.Begin(t.Context(), req)
		if left := a.Record().KeepLeft; err != nil || left != time.Second+1 {
			t.Errorf("KeepLeft is %v with error %v", left, err)
		}
		time.Sleep(time.Nanosecond)
		if !s.asked(func() { mustDo(t, g, req, "again") }) {
			t.Error("the store was not asked after three quarters of the Keep")
		}
		time.Sleep(750*time.Millisecond - 1)
		if s.asked(func() { mustDo(t, g, req, "again") }) {
			t.Error("the store was asked before three quarters of the rest")
		}
		time.Sleep(250*time.Millisecond + 1)
		if a := mustDo(t, g, req, "again"); a.Replayed {
			t.Errorf("the expired record was replayed: %+v", a)
		}
	})
}

// TestCache_TheTimeOfACallCounts lets the response of a claim and of a settlement be late.
func TestCache_TheTimeOfACallCounts(t *testing.T) {
	late := func(do func() error) error {
		err := do()
		time.Sleep(3 * time.Second)
		return err
	}
	req := request("k")
	req.Keep = 4 * time.Second
	for name, see := range map[string]func(*testing.T, *faultyStore, *onlyonce.Guard){
		"claim": func(t *testing.T, s *faultyStore, g *onlyonce.Guard) {
			mustDo(t, onlyonce.New(s, caching), req, "made")
			s.claim = times(1, late)
			mustDo(t, g, req, "again")
		},
		"settlement": func(t *testing.T, s *faultyStore, g *onlyonce.Guard) {
			s.settle = times(1, late)
			mustDo(t, g, req, "made")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				g := onlyonce.New(s, caching)
				see(t, s, g)
				time.Sleep(time.Second)
				if a := mustDo(t, g, req, "again"); a.Replayed {
					t.Errorf("the expired record was replayed: %+v", a)
				}
			})
		})
	}
}
