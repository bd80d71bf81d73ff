package onlyonce_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var (
	histories   = flag.Int("histories", 40, "how many random histories of each kind are tried")
	historySeed = flag.Uint64("history-seed", 0, "the seed of the first history; the faults of a history follow from it")
)

const (
	historyKeys    = 3
	historyWorkers = 6
	historyOps     = 4
	historyKeep    = 1000 * time.Hour
)

// TestGuard_PromisesHoldInRandomHistories lets callers compete for few commands on a
// store whose calls fail in every way, with functions, observers and callbacks
// that end in every way, and checks the guarantees at every moment.
func TestGuard_PromisesHoldInRandomHistories(t *testing.T) {
	for _, kind := range []struct {
		name    string
		percent uint64
		skewed  bool
	}{
		{"a store without faults", 0, false},
		{"a store with faults", 20, false},
		{"a store that mostly fails", 70, false},
		{"a store with faults whose clock jumps", 20, true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			processors(t, func(t *testing.T) {
				for n := range *histories {
					seed := *historySeed + uint64(n)
					synctest.Test(t, func(t *testing.T) {
						h := newHistory(t, seed, kind.percent, kind.skewed)
						h.run()
					})
					if t.Failed() {
						t.Fatalf("again with -run '%s' -history-seed %d -histories 1", t.Name(), seed)
					}
				}
			})
		})
	}
}

// A history is one run of many callers.
type history struct {
	*testing.T
	seed    uint64
	percent uint64
	skewed  bool
	store   *chaosStore
	guard   *onlyonce.TxGuard[simRows]
	runs    atomic.Int64

	mu      sync.Mutex
	live    map[string]map[int64]context.Context // by key: those that run under a lease
	answers map[string][]int64                   // by key: those that were given, and recorded
	steps   map[string]int64                     // by key: the value of the step that was stored
}

// An op is one call of a caller.
type op struct {
	*history
	*rand.Rand
	key        string
	unrecorded atomic.Bool
}

type opKey struct{}

func newHistory(t *testing.T, seed, percent uint64, skewed bool) *history {
	h := &history{
		T: t, seed: seed, percent: percent, skewed: skewed, store: &chaosStore{simStore: newSimStore()},
		live: map[string]map[int64]context.Context{}, answers: map[string][]int64{}, steps: map[string]int64{},
	}
	r := rand.New(rand.NewPCG(seed, 1))
	cfg := onlyonce.Config{
		Lease: time.Duration(1+r.IntN(4)) * time.Second, Keep: historyKeep, Wait: time.Duration(r.IntN(3)) * 2 * time.Second,
		KeepFailures: r.IntN(4) == 0, HoldUnknown: r.IntN(4) == 0, Observer: h.observe,
	}
	if r.IntN(3) == 0 {
		cfg.Reconcile = h.reconcile
	}
	if r.IntN(2) == 0 {
		cfg.CacheBytes, cfg.CacheMaxAge = 1<<20, time.Duration(1+r.IntN(20))*time.Second
	}
	h.guard = onlyonce.NewTx(h.store, cfg)
	return h
}

// observe notes which responses could not be recorded, and then blocks or panics.
func (h *history) observe(ctx context.Context, e onlyonce.Event) {
	o, _ := ctx.Value(opKey{}).(*op)
	if o == nil {
		return
	}
	if e.Outcome == onlyonce.OutcomeUnrecorded {
		o.unrecorded.Store(true)
	}
	switch h.seed % 5 {
	case 0:
		panic("a bug in the observer")
	case 1:
		time.Sleep(time.Duration(len(e.Outcome)%4) * time.Second)
	}
}

// reconcile makes a random decision, which is sometimes invalid.
func (h *history) reconcile(ctx context.Context, r onlyonce.Record) (onlyonce.Settlement, error) {
	states := []onlyonce.State{"", "", onlyonce.StateFailed, onlyonce.StateUnknown, onlyonce.StateProcessing, "nonsense"}
	time.Sleep(time.Duration(r.Fence%3) * time.Second)
	return onlyonce.Settlement{State: states[r.Fence%int64(len(states))]}, context.Cause(ctx)
}

func (h *history) run() {
	var all sync.WaitGroup
	for w := range historyWorkers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(h.seed, uint64(100+w)))
			for i := range historyOps {
				o := &op{history: h, Rand: rand.New(rand.NewPCG(h.seed, uint64(1000+w*100+i))), key: fmt.Sprint("k", r.IntN(historyKeys))}
				time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
				ctx := context.WithValue(withFaults(h.Context(), h.seed+uint64(w*100+i), h.percent), opKey{}, o)
				o.do(ctx)
			}
		})
	}
	if h.skewed {
		r := rand.New(rand.NewPCG(h.seed, 2))
		for range 10 {
			time.Sleep(time.Second)
			h.store.mu.Lock()
			h.store.skew += time.Duration(r.Int64N(int64(8*time.Second))) - 3*time.Second
			h.store.mu.Unlock()
		}
	}
	all.Wait()
	h.quiet()
	h.agree()
}

// quiet wants nothing to go on when nobody asks any more.
func (h *history) quiet() {
	time.Sleep(2 * time.Hour) // until the last call that gets no response is over
	synctest.Wait()
	was := h.store.calls.Load()
	time.Sleep(10 * time.Hour)
	if now := h.store.calls.Load(); now != was {
		h.Errorf("the store was asked %d times with nothing left to do", now-was)
	}
	h.store.renewals.Range(func(owner, n any) bool {
		if n := n.(*atomic.Int64).Load(); n > 150 {
			h.Errorf("an attempt was renewed %d times", n)
		}
		return true
	})
}

// agree wants every response that was given to be the one on record.
func (h *history) agree() {
	for n := range historyKeys {
		key := fmt.Sprint("k", n)
		r, _ := h.store.simStore.Lookup(context.Background(), request(key).ID)
		for _, v := range h.answers[key] {
			if r.State != onlyonce.StateCompleted || string(r.Result.Body) != strconv.FormatInt(v, 10) {
				h.Errorf("%s: the response %d was given (all: %v), the record is %s with %q", key, v, h.answers[key], r.State, r.Result.Body)
			}
		}
		h.store.mu.Lock()
		rows := h.store.rows[key]
		h.store.mu.Unlock()
		if rows > 1 || rows == 1 && r.State != onlyonce.StateCompleted {
			h.Errorf("%s: %d rows were committed, the record is %q", key, rows, r.State)
		}
	}
}

// do asks for the command in one of several ways.
func (o *op) do(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+o.IntN(20))*time.Second)
	defer cancel()
	defer func() {
		if p := recover(); p != nil && p != "the command's" {
			panic(p)
		}
	}()
	req := request(o.key)
	if o.IntN(3) == 0 {
		req.Lease = time.Duration(500+o.IntN(3000)) * time.Millisecond
	}
	var answer onlyonce.Answer[int64]
	var err error
	switch o.IntN(4) {
	case 0:
		answer, err = onlyonce.Do(ctx, o.guard.Guard, req, o.work)
	case 1:
		answer, err = onlyonce.DoTx(ctx, o.guard, req, o.workTx)
	case 2:
		answer, err = onlyonce.Do(ctx, o.guard.Guard, req, o.workThenTx)
	default:
		answer, err = o.byHand(ctx, req)
	}
	if err == nil && !o.unrecorded.Load() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.answers[o.key] = append(o.answers[o.key], answer.Value)
	}
}

// byHand does the same as Do, with an attempt's methods.
func (o *op) byHand(ctx context.Context, req onlyonce.Request) (answer onlyonce.Answer[int64], err error) {
	a, err := o.guard.Begin(ctx, req)
	if err != nil {
		return answer, err
	}
	if r, settled := a.Result(); settled {
		if err := a.Err(); err != nil {
			return answer, err
		}
		answer.Value, err = strconv.ParseInt(string(r.Body), 10, 64)
		return answer, err
	}
	first, stop := a.Context(ctx)
	second, stopSecond := a.Context(ctx)
	defer stop()
	defer stopSecond()
	if o.IntN(2) == 0 {
		first, stop, stopSecond = second, stopSecond, stop
	}
	stopSecond()
	if first.Err() != nil {
		return answer, context.Cause(first)
	}
	answer.Value, err = o.work(first)
	s := onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: strconv.AppendInt(nil, answer.Value, 10)}}
	if err != nil {
		s = onlyonce.Failure(err)
	}
	return answer, errors.Join(a.Settle(ctx, s), err)
}

// work is a command that runs under a lease, and its promises.
func (o *op) work(ctx context.Context) (int64, error) {
	n := o.runs.Add(1)
	o.enter(ctx, n)
	defer o.leave(n)
	if o.IntN(3) == 0 {
		if err := o.step(ctx); err != nil {
			return n, err
		}
	}
	heeds := o.IntN(3) > 0
	for range o.IntN(90) {
		if time.Sleep(100 * time.Millisecond); ctx.Err() == nil {
			o.holds(ctx)
		} else if heeds {
			return n, context.Cause(ctx)
		}
	}
	return n, o.end()
}

// end is how a function ends.
func (o *op) end() error {
	switch o.IntN(8) {
	case 0:
		return errors.New("failed")
	case 1:
		return onlyonce.Final(errors.New("failed for good"))
	case 2:
		return onlyonce.Unknown(errors.New("no response"))
	case 3:
		panic("the command's")
	}
	return nil
}

func (o *op) workTx(ctx context.Context, tx simRows) (int64, error) {
	n := o.runs.Add(1)
	for range o.IntN(30) {
		if time.Sleep(100 * time.Millisecond); ctx.Err() != nil {
			return n, ctx.Err()
		}
	}
	tx[o.key]++
	return n, o.end()
}

// workThenTx settles a command in a transaction after it has done the work outside.
func (o *op) workThenTx(ctx context.Context) (int64, error) {
	n, err := o.work(ctx)
	if err != nil {
		return n, err
	}
	return n, o.guard.SettleTx(ctx, onlyonce.Current(ctx), func(_ context.Context, tx simRows) (onlyonce.Settlement, error) {
		time.Sleep(time.Duration(o.IntN(2000)) * time.Millisecond)
		tx[o.key]++
		return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: strconv.AppendInt(nil, n, 10)}}, nil
	})
}

// step wants the step of a command to have one value.
func (o *op) step(ctx context.Context) error {
	v, err := onlyonce.Step(ctx, "step", func(context.Context) (int64, error) { return o.runs.Add(1), nil })
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if was, there := o.steps[o.key]; there && was != v {
		o.Errorf("%s: a step had the value %d, and now %d", o.key, was, v)
	}
	o.steps[o.key] = v
	return nil
}

// enter notes that a function runs, and wants nobody else to.
func (o *op) enter(ctx context.Context, n int64) {
	o.holds(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	for other, running := range o.live[o.key] {
		if running.Err() == nil && ctx.Err() == nil && !o.skewed {
			o.Errorf("%s: run %d began while run %d held the lease", o.key, n, other)
		}
	}
	if o.live[o.key] == nil {
		o.live[o.key] = map[int64]context.Context{}
	}
	o.live[o.key][n] = ctx
}

func (o *op) leave(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.live[o.key], n)
}

// holds wants the store to know a context's attempt as the holder, with a lease
// that has not ended. A store whose clock jumps may know better.
func (o *op) holds(ctx context.Context) {
	a := onlyonce.Current(ctx)
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	r := o.store.find(a.Record().ID)
	if o.skewed || ctx.Err() != nil {
		return
	}
	if r == nil || r.Owner != a.Record().Owner || r.State != onlyonce.StateProcessing || r.LeaseLeft <= 0 {
		o.Errorf("%s: a context lives, and its attempt %d does not hold the lease: the record is %+v", o.key, a.Number(), r)
	}
}
