package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// TestCache_RandomHistoriesGetTheResponsesOfAGuardWithoutOne makes each call twice: by a Guard
// without a cache on a copy of the store, and then by one with a cache. Both must get the same
// response, send the same events and leave the same record, unless a person has changed the
// record within the maximum age. The response may then also be that of before the change.
func TestCache_RandomHistoriesGetTheResponsesOfAGuardWithoutOne(t *testing.T) {
	var all cacheHistoryCounts
	for n := range *histories {
		seed := *historySeed + uint64(n)
		synctest.Test(t, func(t *testing.T) { newCacheHistory(t, seed, &all).run() })
		if t.Failed() {
			t.Fatalf("again with -run '%s' -history-seed %d -histories 1", t.Name(), seed)
		}
	}
	if *histories >= 40 && (all.recalled == 0 || all.outdated == 0 || all.mismatched == 0) {
		t.Errorf("the histories test too little: %+v", all)
	}
}

type cacheHistoryCounts struct {
	recalled   int // calls that needed no store
	outdated   int // of them, those with a response of before a change
	mismatched int // of them, those that were rejected
}

const cacheHistoryAge = 10 * time.Second

// A cacheHistory is a random history of one Guard with a cache, of people, and of other
// processes.
type cacheHistory struct {
	*testing.T
	*rand.Rand
	counts *cacheHistoryCounts
	store  *countedStore
	cfg    onlyonce.Config
	guard  *onlyonce.TxGuard[simRows]
	events []onlyonce.Outcome
	before map[string][]changedAt // by key
	n      int
}

// A changedAt is the store before a person changed a record.
type changedAt struct {
	at    time.Time
	store *simStore
}

func newCacheHistory(t *testing.T, seed uint64, counts *cacheHistoryCounts) *cacheHistory {
	r := rand.New(rand.NewPCG(seed, 3))
	h := &cacheHistory{T: t, Rand: r, counts: counts, store: newCountedStore(), before: map[string][]changedAt{}}
	h.cfg = onlyonce.Config{KeepFailures: r.IntN(2) == 0, HoldUnknown: r.IntN(2) == 0, Observer: func(_ context.Context, e onlyonce.Event) {
		h.events = append(h.events, e.Outcome)
	}}
	cfg := h.cfg
	cfg.CacheBytes = []int64{1 << 20, 3 << 10}[r.IntN(2)] // the latter has room for few records
	h.guard = onlyonce.NewTx(h.store, cfg)
	return h
}

func (h *cacheHistory) run() {
	for range 200 {
		time.Sleep(time.Duration(h.Int64N(int64(4 * time.Second))))
		key := fmt.Sprint("k", h.IntN(4))
		switch h.IntN(20) {
		case 0, 1:
			h.decide(key)
		case 2:
			h.elsewhere(key)
		default:
			h.ask(key)
		}
	}
}

// decide changes or deletes a settled record as a person does, and sometimes says so.
func (h *cacheHistory) decide(key string) {
	id := request(key).ID
	r, err := h.store.simStore.Lookup(h.Context(), id)
	if err != nil || r.State == onlyonce.StateProcessing {
		return
	}
	h.before[key] = append(h.before[key], changedAt{time.Now(), h.store.copied()})
	h.store.change(h.T, id, []onlyonce.Settlement{
		{},
		{State: onlyonce.StateFailed, Error: "by hand", Keep: time.Hour},
		{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("-1")}, Keep: time.Hour},
	}[h.IntN(3)])
	if h.IntN(2) == 0 {
		h.guard.Forget(id)
		delete(h.before, key)
		time.Sleep(time.Nanosecond) // a call at the same instant might have begun before
	}
}

// elsewhere lets another process run the command, or die in it.
func (h *cacheHistory) elsewhere(key string) {
	if h.IntN(2) == 0 {
		if r, err := h.store.simStore.Lookup(h.Context(), request(key).ID); err == nil && r.State != onlyonce.StateFailed {
			return
		}
		crash(h.T, h.store.simStore, request(key), 3*time.Second)
		return
	}
	_, _ = onlyonce.Do(h.Context(), onlyonce.New(h.store.simStore, onlyonce.Config{Observer: onlyonce.DiscardEvents}), request(key), returns(1000+h.n))
}

// A response describes the response to a caller and the record that is left in the store.
type response struct{ got, left string }

// ask makes one call in both ways.
func (h *cacheHistory) ask(key string) {
	h.n++
	call := h.call(key)
	respond := func(g *onlyonce.TxGuard[simRows], s *simStore) response {
		h.events = nil
		got := call(g)
		return response{fmt.Sprint(got, " ", h.events), s.describe(request(key).ID)}
	}
	plain := func(s *simStore) response {
		s = s.copied()
		return respond(onlyonce.NewTx(s, h.cfg), s)
	}
	want := plain(h.store.simStore)
	var outdated []string
	for _, c := range h.before[key] {
		if time.Since(c.at) < cacheHistoryAge {
			outdated = append(outdated, plain(c.store).got)
		}
	}
	was, calls := h.store.describe(request(key).ID), h.store.calls.Load()
	is := respond(h.guard, h.store.simStore)
	recalled := h.store.calls.Load() == calls
	if recalled {
		h.counts.recalled++
		if slices.Contains(h.events, onlyonce.OutcomeMismatch) {
			h.counts.mismatched++
		}
	}
	switch {
	case is == want:
	case recalled && slices.Contains(outdated, is.got) && is.left == was:
		h.counts.outdated++
	default:
		h.Errorf("call %d:\n%+v, want\n%+v\nor the responses of before a change: %q", h.n, is, want, outdated)
	}
}

// call returns a random call of one command.
func (h *cacheHistory) call(key string) func(*onlyonce.TxGuard[simRows]) string {
	req := request(key)
	switch h.IntN(8) {
	case 0:
		req.Fingerprint = onlyonce.Fingerprint([]byte("another body"))
	case 1:
		req.Fingerprint, req.SkipFingerprint = nil, true
	}
	req.Keep = []time.Duration{0, time.Second, 8 * time.Second, onlyonce.KeepForever}[h.IntN(4)]
	err := []error{nil, nil, nil, errors.New("failed"), onlyonce.Final(errors.New("for good")), onlyonce.Unknown(errors.New("no response"))}[h.IntN(6)]
	inTx, n := h.IntN(3) == 0, h.n
	return func(g *onlyonce.TxGuard[simRows]) string {
		var a onlyonce.Answer[int]
		var got error
		if inTx {
			a, got = onlyonce.DoTx(h.Context(), g, req, func(context.Context, simRows) (int, error) { return n, err })
		} else {
			a, got = onlyonce.Do(h.Context(), g.Guard, req, func(context.Context) (int, error) { return n, err })
		}
		return fmt.Sprintf("%+v, error %v", a, got)
	}
}

// copied returns a store with the same records.
func (s *simStore) copied() *simStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newSimStore()
	c.fence, c.skew = s.fence, s.skew
	for id, r := range s.records {
		copied := *r
		c.records[id] = &copied
	}
	return c
}

// describe returns the parts of a record that callers can see.
func (s *simStore) describe(id onlyonce.ID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	if r == nil {
		return "absent"
	}
	return fmt.Sprintf("%s, attempt %d, body %q, error %q, final %v, lease left %v, keep left %v", r.State, r.Attempt, r.Result.Body, r.Error, r.Final, r.LeaseLeft, r.KeepLeft)
}
