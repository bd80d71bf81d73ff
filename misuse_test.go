package onlyonce_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// TestAttempt_TheMethodsOfAnAttemptKeepTheirPromisesInAnyOrder lets goroutines call an
// attempt's methods as nobody should: twice, after it is settled, at once.
func TestAttempt_TheMethodsOfAnAttemptKeepTheirPromisesInAnyOrder(t *testing.T) {
	for _, percent := range []uint64{0, 30} {
		for _, replayed := range []bool{false, true} {
			processors(t, func(t *testing.T) {
				for n := range *histories {
					seed := *historySeed + uint64(n)
					synctest.Test(t, func(t *testing.T) { misuse(t, seed, percent, replayed) })
					if t.Failed() {
						t.Fatalf("seed %d, %d %% faults, replayed %v", seed, percent, replayed)
					}
				}
			})
		}
	}
}

func misuse(t *testing.T, seed, percent uint64, replayed bool) {
	var log eventLog
	store := &chaosStore{simStore: newSimStore()}
	g := onlyonce.NewTx(store, onlyonce.Config{Lease: 3 * time.Second, Keep: historyKeep, Observer: log.observe})
	if replayed {
		if _, err := onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		log.events = nil
	}
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	was := a.Record()
	m := &misuser{T: t, guard: g, attempt: a, store: store, key: a.Key("step")}
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			ctx, cancel := context.WithTimeout(withFaults(t.Context(), seed+uint64(i), percent), 20*time.Second)
			defer cancel()
			for range 12 {
				m.call(ctx, r)
			}
		})
	}
	all.Wait()
	for _, stop := range m.stops {
		stop()
	}
	time.Sleep(2 * time.Hour)
	asked := store.calls.Load()
	time.Sleep(10 * time.Hour)
	if store.calls.Load() != asked {
		t.Error("the store is asked although all contexts were stopped")
	}
	m.check(&log, was, percent, replayed)
}

// A misuser calls the methods of one attempt.
type misuser struct {
	*testing.T
	attempt *onlyonce.Attempt
	store   *chaosStore
	guard   *onlyonce.TxGuard[simRows]
	key     string

	mu       sync.Mutex
	contexts []context.Context
	stops    []context.CancelFunc
	settled  []onlyonce.State // by calls that returned no error
}

var misuseStates = []onlyonce.State{
	onlyonce.StateCompleted, onlyonce.StateCompleted, onlyonce.StateFailed, onlyonce.StateUnknown, "", onlyonce.StateProcessing, "nonsense",
}

func (m *misuser) call(ctx context.Context, r *rand.Rand) {
	a := m.attempt
	s := onlyonce.Settlement{State: misuseStates[r.IntN(len(misuseStates))], Error: strconv.Itoa(r.IntN(100))}
	switch r.IntN(12) {
	case 0, 1, 2:
		run, stop := a.Context(ctx)
		m.mu.Lock()
		m.contexts, m.stops = append(m.contexts, run), append(m.stops, stop)
		m.mu.Unlock()
	case 3:
		if stop := pick(m, r, &m.stops); stop != nil {
			stop()
			stop()
		}
	case 4:
		if run := pick(m, r, &m.contexts); run != nil {
			ctx = run
		}
		m.note(s.State, a.Settle(ctx, s))
	case 5:
		if run := pick(m, r, &m.contexts); run != nil {
			ctx = run
		}
		m.note(s.State, m.guard.SettleTx(ctx, a, func(_ context.Context, tx simRows) (onlyonce.Settlement, error) {
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			tx["row"]++
			return s, nil
		}))
	case 6:
		if run := pick(m, r, &m.contexts); run != nil {
			_, _ = onlyonce.Step(run, "step", func(context.Context) (int, error) { return 1, nil })
		}
	case 7:
		a.SetRef("ref")
		a.SetStatus(201)
	case 8:
		if a.Key("step") != m.key || a.Number() != 1 || a.Fence() == 0 || a.Err() != nil {
			m.Error("a method's response changed")
		}
		_, _ = a.Result()
	default:
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
	}
}

func pick[T any](m *misuser, r *rand.Rand, from *[]T) (one T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(*from) > 0 {
		one = (*from)[r.IntN(len(*from))]
	}
	return one
}

func (m *misuser) note(state onlyonce.State, err error) {
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.settled = append(m.settled, state)
	}
}

// check wants at most one call to have settled the attempt, everybody to have
// been told of it, and attempt and record to say the same.
func (m *misuser) check(log *eventLog, was onlyonce.Record, percent uint64, replayed bool) {
	ends := 0
	for _, outcome := range []onlyonce.Outcome{onlyonce.OutcomeExecuted, onlyonce.OutcomeFailed, onlyonce.OutcomeUnknown, onlyonce.OutcomeLost, onlyonce.OutcomeUnrecorded} {
		ends += log.count(outcome)
	}
	if len(m.settled) > 1 || ends > 1 || len(m.settled) > ends {
		m.Errorf("settled as %q with %d events", m.settled, ends)
	}
	if replayed && (len(m.settled) > 0 || ends > 0 || m.attempt.Record().State != was.State || m.attempt.Record().Owner != was.Owner) {
		m.Errorf("a replayed attempt was settled as %q with %d events, and is %+v", m.settled, ends, m.attempt.Record())
	}
	for i, ctx := range m.contexts {
		if ctx.Err() == nil {
			m.Errorf("context %d lives", i)
		}
	}
	now, err := m.store.simStore.Lookup(context.Background(), was.ID)
	if err == nil && percent == 0 && (now.State != m.attempt.Record().State || now.Error != m.attempt.Record().Error) {
		m.Errorf("the attempt says %s %q, the record %s %q", m.attempt.Record().State, m.attempt.Record().Error, now.State, now.Error)
	}
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if rows := m.store.rows["row"]; rows > 1 || percent == 0 && rows > len(m.settled) {
		m.Errorf("%d rows were committed, settled as %q", rows, m.settled)
	}
}
