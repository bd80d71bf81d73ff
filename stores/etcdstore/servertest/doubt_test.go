package servertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func TestStore_ACallWhoseResponseIsLostTakesEffectOnce(t *testing.T) {
	t.Parallel()
	server, direct, observer := migrated(t)
	hazard.CheckLostResponses(t, hazard.Server{
		Address: server.Client,
		Open: func(t *testing.T, address string) hazard.Store {
			return open(t, connectTo(t, address), patient)
		},
		Version: func(t *testing.T, id onlyonce.ID) string { return fmt.Sprint(get(t, direct, headOf(id)).ModRevision) },
		Sends: func(name, owner, _ string) string {
			return map[string]string{
				"claim": "1P0" + owner, "renew": "a step", "settle": "made", "release": "1R0", "resolve": "made", "delete": "1R0",
			}[name]
		},
	}, observer)
}

// Every connection breaks after some bytes, wherever in a request or a response that is.
func TestStore_ConnectionsThatBreakAnywhereLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	server, _, observer := migrated(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := hazard.NewWay(t, server.Client)
	w.Weaken(rand.New(rand.NewPCG(seed, 0)))
	s := open(t, connectTo(t, w.Address()), patient)
	var callers sync.WaitGroup
	for g := range 8 {
		callers.Go(func() {
			for i := range 40 {
				claim := hazard.Claim(fmt.Sprint(g, " ", i))
				r, err := s.Claim(t.Context(), claim)
				if err != nil || r.Owner != claim.Owner || r.Attempt != 1 {
					t.Errorf("claim got %+v, error %v", r, err)
					return
				}
				if err := s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a": []byte(claim.ID.Key)}); err != nil {
					t.Errorf("renew: %v", err)
				}
				done := hazard.Completed
				done.Result.Body = []byte(claim.ID.Key)
				if err := s.Settle(t.Context(), hazard.Hold(r), done); err != nil {
					t.Errorf("settle: %v", err)
				}
				now, err := observer.Lookup(t.Context(), claim.ID)
				if err != nil || now.State != onlyonce.StateCompleted || string(now.Result.Body) != claim.ID.Key || string(now.Steps["a"]) != claim.ID.Key || now.Fence != r.Fence {
					t.Errorf("the record is %+v, error %v", now, err)
				}
			}
		})
	}
	callers.Wait()
}

// Once others have changed the record, a call whose response was lost can't tell whether it
// took effect. It must not say that it changed nothing.
func TestStore_ACallWhoseResponseIsLostIsInDoubtOnceOthersHaveChangedTheRecord(t *testing.T) {
	t.Parallel()
	server, direct, observer := migrated(t)
	settle := func(t *testing.T, r onlyonce.Record, how onlyonce.Settlement) {
		t.Helper()
		if err := observer.Settle(t.Context(), hazard.Hold(r), how); err != nil {
			t.Fatal(err)
		}
	}
	is := func(state byte) func(*testing.T, onlyonce.Record) bool {
		return func(t *testing.T, r onlyonce.Record) bool { return get(t, direct, headOf(r.ID)).Value[1] == state }
	}
	for name, c := range map[string]struct {
		sends  string // a text that only the request of the change contains
		call   func(*testing.T, *etcdstore.Store, onlyonce.Record) error
		stored func(*testing.T, onlyonce.Record) bool
		others func(*testing.T, onlyonce.Record)
	}{
		"renew": {"a step", func(t *testing.T, s *etcdstore.Store, r onlyonce.Record) error {
			return s.Renew(t.Context(), hazard.Hold(r), time.Hour, map[string][]byte{"a step": []byte("1")})
		}, func(t *testing.T, r onlyonce.Record) bool { return get(t, direct, restOf(r.ID)) != nil }, func(t *testing.T, r onlyonce.Record) { settle(t, r, hazard.Completed) }},
		"settle": {"made", func(t *testing.T, s *etcdstore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), hazard.Completed)
		}, is('C'), func(t *testing.T, r onlyonce.Record) {
			now, err := observer.Lookup(t.Context(), r.ID)
			if err == nil {
				err = observer.Resolve(t.Context(), now, onlyonce.Settlement{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		"release": {"1R0", func(t *testing.T, s *etcdstore.Store, r onlyonce.Record) error {
			return s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{})
		}, is('R'), func(t *testing.T, r onlyonce.Record) { hazard.Run(t, observer, r.ID.Key) }},
		"resolve": {"made", func(t *testing.T, s *etcdstore.Store, r onlyonce.Record) error {
			settle(t, r, onlyonce.Settlement{State: onlyonce.StateUnknown})
			r.State = onlyonce.StateUnknown
			return s.Resolve(t.Context(), r, hazard.Completed)
		}, is('C'), func(t *testing.T, r onlyonce.Record) {
			now, err := observer.Lookup(t.Context(), r.ID)
			if err == nil {
				err = observer.Resolve(t.Context(), now, onlyonce.Settlement{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := observer.Claim(t.Context(), hazard.Claim(name))
			if err != nil {
				t.Fatal(err)
			}
			w := hazard.NewWay(t, server.Client)
			s := open(t, connectTo(t, w.Address()), patient)
			if _, err := s.Claim(t.Context(), hazard.Claim(name)); err != nil { // it does not take the command for new any more
				t.Fatal(err)
			}
			w.Deafen(c.sends)
			done := make(chan error, 1)
			go func() { done <- c.call(t, s, r) }()
			for !c.stored(t, r) {
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
