package onlyonce_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

var errDown = errors.New("store is down")

// A faultyStore is a memstore whose calls fail as the test demands.
type faultyStore struct {
	*memstore.Store
	mu    sync.Mutex
	claim func(do func() error) error // nil: calls do
	renew func(do func() error) error

	renewCtx   func(ctx context.Context, do func() error) error // instead of renew
	renewSteps func(ctx context.Context, do func() error) error // instead of renew, when there are steps

	settle func(do func() error) error
	alter  func(*onlyonce.Record) // changes what Claim returns
}

func newStore() *faultyStore { return &faultyStore{Store: memstore.New(memstore.Config{})} }

func (s *faultyStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *faultyStore) call(fault *func(func() error) error, do func() error) error {
	s.mu.Lock()
	f := *fault
	s.mu.Unlock()
	if f == nil {
		return do()
	}
	return f(do)
}

func (s *faultyStore) Claim(ctx context.Context, c onlyonce.Claim) (r onlyonce.Record, err error) {
	err = s.call(&s.claim, func() error { r, err = s.Store.Claim(ctx, c); return err })
	if s.alter != nil {
		s.alter(&r)
	}
	return r, err
}

func (s *faultyStore) Renew(ctx context.Context, h onlyonce.Hold, d time.Duration, steps map[string][]byte) error {
	do := func() error { return s.Store.Renew(context.WithoutCancel(ctx), h, d, steps) }
	if s.renewSteps != nil && len(steps) > 0 {
		return s.renewSteps(ctx, do)
	}
	if s.renewCtx != nil {
		return s.renewCtx(ctx, do)
	}
	return s.call(&s.renew, do)
}

func (s *faultyStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	return s.call(&s.settle, func() error { return s.Store.Settle(ctx, h, st) })
}

// down fails without reaching the store; lossy loses the response.
func down(func() error) error     { return errDown }
func lossy(do func() error) error { return errors.Join(do(), errDown) }

// times applies fault to the first n calls.
func times(n int, fault func(func() error) error) func(func() error) error {
	return func(do func() error) error {
		if n--; n < 0 {
			return do()
		}
		return fault(do)
	}
}

// An eventLog is an Observer that remembers the outcomes.
type eventLog struct {
	mu     sync.Mutex
	events []onlyonce.Event
}

func (l *eventLog) observe(_ context.Context, e onlyonce.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *eventLog) count(outcome onlyonce.Outcome) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Outcome == outcome {
			n++
		}
	}
	return n
}

func (l *eventLog) expect(t *testing.T, outcomes ...onlyonce.Outcome) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := make([]onlyonce.Outcome, len(l.events))
	for i, e := range l.events {
		got[i] = e.Outcome
	}
	if len(got) != len(outcomes) {
		t.Fatalf("events %v, want %v", got, outcomes)
	}
	for i := range got {
		if got[i] != outcomes[i] {
			t.Fatalf("events %v, want %v", got, outcomes)
		}
	}
}

func request(key string) onlyonce.Request {
	return onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "pay", Key: key}, Fingerprint: onlyonce.Fingerprint([]byte("body"))}
}

// crash leaves a command as a process that died in its attempt would.
func crash(t *testing.T, store onlyonce.Store, req onlyonce.Request, lease time.Duration) onlyonce.Record {
	t.Helper()
	rec, err := store.Claim(t.Context(), onlyonce.Claim{ID: req.ID, Owner: "dead process", Fingerprint: req.Fingerprint, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func lookup(t *testing.T, store onlyonce.Store, req onlyonce.Request) onlyonce.Record {
	t.Helper()
	rec, err := store.Lookup(context.Background(), req.ID)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}
