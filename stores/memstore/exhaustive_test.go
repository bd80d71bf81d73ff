package memstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// TestExhaustive_EveryShortHistoryOfThreeWorkersKeepsTheRules compares the store with a
// model after every call of every history of a few calls. Workers that have done
// nothing yet are the same, so only the first of them acts.
func TestExhaustive_EveryShortHistoryOfThreeWorkersKeepsTheRules(t *testing.T) {
	for _, scope := range []struct{ keys, calls, histories int }{
		{1, 6, 50_000},
		{2, 5, 50_000},
	} {
		t.Run(fmt.Sprintf("%d keys, %d calls", scope.keys, scope.calls), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := explorer{t: t, calls: scope.calls, keys: scope.keys}
				e.explore(newWorld(scope.keys), nil)
				if e.histories < scope.histories {
					t.Errorf("only %d histories", e.histories)
				}
			})
		})
	}
}

const (
	workers = 3
	lease   = time.Second
)

// A call is a method that a worker, or a person, calls with a key.
type call struct {
	key, worker int // worker is nobody's for a person's decision and for the time
	what        string
}

func (c call) String() string { return fmt.Sprintf("%s by %d on %d", c.what, c.worker, c.key) }

// A modelRecord is the record that the store should have under a key.
type modelRecord struct {
	state  onlyonce.State // "": no record
	worker int            // that holds it or has settled it; -1: nobody
	lapsed bool
}

// A world is the model of the store, and the workers that hold or held its keys.
type world struct {
	records []modelRecord
	held    [][workers]bool
	seen    int // workers that have acted
}

func newWorld(keys int) world {
	return world{records: make([]modelRecord, keys), held: make([][workers]bool, keys)}
}

// calls returns the calls that can change or show something.
func (w world) calls() (all []call) {
	for key, r := range w.records {
		for worker := range min(w.seen+1, workers) {
			all = append(all, call{key, worker, "claim"})
			if w.held[key][worker] {
				for _, what := range []string{"renew", "complete", "fail", "release"} {
					all = append(all, call{key, worker, what})
				}
			}
		}
		if r.state != "" {
			all = append(all, call{key, -1, "resolve"}, call{key, -1, "delete"})
		}
		if r.state == onlyonce.StateProcessing && !r.lapsed {
			all = append(all, call{key, -1, "time"})
		}
	}
	return all
}

// after returns the world after a call, and the error that the call should get. A claim
// that is not granted gets errNotGranted.
func (w world) after(c call) (world, error) {
	w.records, w.held = append([]modelRecord(nil), w.records...), append([][workers]bool(nil), w.held...)
	w.seen = max(w.seen, c.worker+1)
	r := &w.records[c.key]
	running := r.state == onlyonce.StateProcessing
	mine := r.state != "" && r.worker == c.worker && w.held[c.key][max(c.worker, 0)]
	switch c.what {
	case "claim":
		if r.state == onlyonce.StateCompleted || running && !r.lapsed {
			return w, errNotGranted
		}
		*r = modelRecord{state: onlyonce.StateProcessing, worker: c.worker}
		w.held[c.key][c.worker] = true
	case "renew":
		if !mine || !running {
			return w, onlyonce.ErrLost
		}
		r.lapsed = false
	case "complete", "fail", "release":
		switch {
		case !mine:
			return w, onlyonce.ErrLost
		case !running: // a settlement that is repeated
		case c.what == "release":
			*r = modelRecord{}
		default:
			*r = modelRecord{state: ends[c.what].State, worker: c.worker}
		}
	case "resolve", "delete":
		if running && !r.lapsed {
			return w, onlyonce.ErrInFlight
		}
		*r = modelRecord{worker: -1}
		if c.what == "resolve" {
			r.state = onlyonce.StateCompleted
		}
	case "time":
		for key := range w.records {
			w.records[key].lapsed = w.records[key].state == onlyonce.StateProcessing
		}
	}
	return w, nil
}

var (
	errNotGranted = errors.New("the claim is not granted")
	ends          = map[string]onlyonce.Settlement{
		"complete": {State: onlyonce.StateCompleted}, "fail": {State: onlyonce.StateFailed}, "release": {},
		"resolve": {State: onlyonce.StateCompleted}, "delete": {},
	}
)

// An explorer tries every history.
type explorer struct {
	t           *testing.T
	calls, keys int
	histories   int
	store       *memstore.Store
}

func (e *explorer) explore(w world, history []call) {
	if len(history) == e.calls {
		e.try(history)
		return
	}
	for _, c := range w.calls() {
		if next, _ := w.after(c); !e.t.Failed() {
			e.explore(next, append(history[:len(history):len(history)], c))
		}
	}
}

func (e *explorer) try(history []call) {
	if e.histories%1000 == 0 {
		e.store = memstore.New(memstore.Config{})
	}
	e.histories++
	ids := make([]onlyonce.ID, e.keys)
	for key := range ids {
		ids[key] = onlyonce.ID{Tenant: fmt.Sprint(e.histories), Key: fmt.Sprint(key)}
	}
	w := newWorld(e.keys)
	holds, fences := make([][workers]onlyonce.Hold, e.keys), make([]int64, e.keys)
	for n, c := range history {
		next, want := w.after(c)
		err := e.make(c, ids[c.key], n, &holds[c.key], &fences[c.key])
		if !errors.Is(err, want) || want == nil && err != nil {
			e.t.Fatalf("%v: call %d got %v, want %v", history, n+1, err, want)
		}
		w = next
		for key, id := range ids {
			r, err := e.store.Lookup(e.t.Context(), id)
			is := modelRecord{state: r.State, worker: w.records[key].worker, lapsed: r.State == onlyonce.StateProcessing && r.LeaseLeft <= 0}
			if worker := is.worker; worker >= 0 && is.state != "" && (r.Owner != holds[key][worker].Owner || r.Fence != holds[key][worker].Fence) {
				e.t.Fatalf("%v: after call %d, the record is %+v, and worker %d has %+v", history, n+1, r, worker, holds[key][worker])
			}
			if is != w.records[key] || (is.state == "") != errors.Is(err, onlyonce.ErrNotFound) {
				e.t.Fatalf("%v: after call %d, the record is %+v with error %v, want %+v", history, n+1, r, err, w.records[key])
			}
		}
	}
}

// make makes the call, and checks that a fence is higher than all before it.
func (e *explorer) make(c call, id onlyonce.ID, n int, holds *[workers]onlyonce.Hold, fence *int64) error {
	ctx := e.t.Context()
	switch c.what {
	case "claim":
		owner := strings.Repeat(string(rune('a'+n)), 16)
		r, err := e.store.Claim(ctx, onlyonce.Claim{ID: id, Owner: owner, SkipFingerprint: true, Lease: lease, TakeUnknown: true, RetryFailed: true})
		if err != nil || r.Owner != owner {
			return errors.Join(err, errNotGranted)
		}
		if r.Fence <= *fence {
			e.t.Errorf("fence %d after %d", r.Fence, *fence)
		}
		holds[c.worker], *fence = onlyonce.Hold{ID: id, Owner: owner, Fence: r.Fence}, r.Fence
	case "renew":
		return e.store.Renew(ctx, holds[c.worker], lease, nil)
	case "complete", "fail", "release":
		return e.store.Settle(ctx, holds[c.worker], ends[c.what])
	case "resolve", "delete":
		r, err := e.store.Lookup(ctx, id)
		if err != nil {
			return err
		}
		return e.store.Resolve(ctx, r, ends[c.what])
	case "time":
		time.Sleep(lease)
	}
	return nil
}
