package onlyonce_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestCache_ForgetAsksTheStoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore()
		g := onlyonce.New(s, caching)
		for _, key := range []string{"k", "l"} {
			mustDo(t, g, request(key), "made")
		}
		s.change(t, request("k").ID, onlyonce.Settlement{})
		g.Forget(request("k").ID)
		if a := mustDo(t, g, request("k"), "again"); a.Value != "again" {
			t.Errorf("the response is %+v", a)
		}
		if s.asked(func() { mustDo(t, g, request("l"), "again") }) {
			t.Error("the other command was forgotten, too")
		}
		onlyonce.New(s, onlyonce.Config{}).Forget(request("k").ID) // keeps nothing
	})
}

// TestCache_ForgetIsNotUndoneByACallThatBeganBefore holds back the response of a claim, or of
// a settlement, until the record was deleted and forgotten.
func TestCache_ForgetIsNotUndoneByACallThatBeganBefore(t *testing.T) {
	held := func(do func() error) error {
		err := do()
		time.Sleep(time.Second)
		return err
	}
	for name, settles := range map[string]bool{"claim": false, "settlement": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				g := onlyonce.New(s, caching)
				if settles {
					s.settle = times(1, held)
				} else {
					mustDo(t, onlyonce.New(s, caching), request("k"), "made")
					s.claim = times(1, held)
				}
				var first sync.WaitGroup
				first.Go(func() { mustDo(t, g, request("k"), "made") })
				time.Sleep(500 * time.Millisecond)
				rec := lookup(t, s, request("k"))
				if err := s.Resolve(t.Context(), rec, onlyonce.Settlement{}); err != nil {
					t.Fatal(err)
				}
				g.Forget(request("k").ID)
				first.Wait()
				if a := mustDo(t, g, request("k"), "again"); a.Replayed {
					t.Errorf("the response of before was kept: %+v", a)
				}
			})
		})
	}
}

// TestCache_AnEarlierRecordDoesNotReplaceALaterOne holds back the response of a claim until the
// command was deleted and has run again.
func TestCache_AnEarlierRecordDoesNotReplaceALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		g := onlyonce.New(s, caching)
		mustDo(t, onlyonce.New(s, caching), request("k"), "made")
		s.claim = times(1, func(do func() error) error {
			err := do()
			time.Sleep(time.Second)
			return err
		})
		var first sync.WaitGroup
		first.Go(func() { mustDo(t, g, request("k"), "never") })
		time.Sleep(500 * time.Millisecond)
		if err := s.Resolve(t.Context(), lookup(t, s, request("k")), onlyonce.Settlement{}); err != nil {
			t.Fatal(err)
		}
		mustDo(t, g, request("k"), "again")
		first.Wait()
		if a := mustDo(t, g, request("k"), "never"); a.Value != "again" {
			t.Errorf("the response is %+v, after one that was made later", a)
		}
	})
}

func TestCache_APurgeForgetsWhatTheStoreSaysHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		g := onlyonce.New(purgedStore{s}, caching)
		mustDo(t, g, request("k"), "made")
		if _, err := g.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := mustDo(t, g, request("k"), "again"); a.Replayed {
			t.Errorf("the purged record was replayed: %+v", a)
		}
	})
}

// A purgedStore's clock is so far ahead that a purge deletes every record.
type purgedStore struct{ *faultyStore }

func (s purgedStore) Purge(ctx context.Context, _ int) (n int, err error) {
	for r, err := range s.List(ctx, onlyonce.Filter{}) {
		if err == nil {
			err = s.Resolve(ctx, r, onlyonce.Settlement{})
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
