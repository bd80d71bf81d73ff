package onlyonce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestReconcile_DecidesWhatBecameOfALapsedAttempt(t *testing.T) {
	looking := errors.New("provider is down")
	for name, test := range map[string]struct {
		found  onlyonce.Settlement
		err    error
		value  int
		want   error
		runs   int
		state  onlyonce.State
		events []onlyonce.Outcome
	}{
		"it happened": {
			found: onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("7"), Ref: "ch_7"}},
			value: 7, state: onlyonce.StateCompleted, events: []onlyonce.Outcome{"taken_over", "executed", "replayed"},
		},
		"it did not": {
			found: onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no such charge"},
			value: 2, runs: 1, state: onlyonce.StateCompleted, events: []onlyonce.Outcome{"taken_over", "failed", "executed"},
		},
		"it failed for good": {
			found: onlyonce.Settlement{State: onlyonce.StateFailed, Final: true, Error: "rejected"},
			want:  onlyonce.ErrFailed, state: onlyonce.StateFailed, events: []onlyonce.Outcome{"taken_over", "failed", "replayed"},
		},
		"run it again": {
			value: 2, runs: 1, state: onlyonce.StateCompleted, events: []onlyonce.Outcome{"taken_over", "executed"},
		},
		"still unknown": {
			found: onlyonce.Settlement{State: onlyonce.StateUnknown, Error: "ask later"},
			want:  onlyonce.ErrUnknown, state: onlyonce.StateUnknown, events: []onlyonce.Outcome{"taken_over", "unknown"},
		},
		"an error": {
			err: looking, want: looking, state: onlyonce.StateUnknown, events: []onlyonce.Outcome{"taken_over", "unknown"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log eventLog
				store := newStore()
				dead := crash(t, store, request("k"), time.Second)
				time.Sleep(2 * time.Second)
				g := onlyonce.New(store, onlyonce.Config{
					Observer: log.observe,
					Reconcile: func(ctx context.Context, r onlyonce.Record) (onlyonce.Settlement, error) {
						if r.Owner != dead.Owner || r.Fence != dead.Fence || r.LeaseLeft > 0 {
							t.Errorf("asked about %+v", r)
						}
						return test.found, test.err
					},
				})
				runs := 0
				a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { runs++; return 2, nil })
				if !errors.Is(err, test.want) || a.Value != test.value || runs != test.runs {
					t.Errorf("response %+v, error %v, ran %d times", a, err, runs)
				}
				rec := lookup(t, store, request("k"))
				if rec.State != test.state || rec.Fence <= dead.Fence {
					t.Errorf("record %+v", rec)
				}
				log.expect(t, test.events...)
			})
		})
	}
}

func TestReconcile_ACommandBecomesUnknownOnceAndIsThenHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		store := newStore()
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		g := onlyonce.New(store, onlyonce.Config{
			Observer: log.observe,
			Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, errDown
			},
		})
		for range 3 {
			if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, errDown) {
				t.Error(err)
			}
		}
		log.expect(t, "taken_over", "unknown", "taken_over", "held", "taken_over", "held")
		g = onlyonce.New(store, onlyonce.Config{
			Observer:  log.observe,
			Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil },
		})
		_, _ = onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, onlyonce.Unknown(errDown) })
		log.expect(t, "taken_over", "unknown", "taken_over", "held", "taken_over", "held", "taken_over", "unknown")
	})
}

func TestReconcile_TheRefAndStatusOfAnUnknownOutcomeStayUntilItIsFound(t *testing.T) {
	for name, look := range map[string]func() (onlyonce.Settlement, error){
		"an error":      func() (onlyonce.Settlement, error) { return onlyonce.Settlement{}, errDown },
		"still unknown": func() (onlyonce.Settlement, error) { return onlyonce.Settlement{State: onlyonce.StateUnknown}, nil },
		"a panic":       func() (onlyonce.Settlement, error) { panic("a bug in the callback") },
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			g := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents, Reconcile: func(_ context.Context, r onlyonce.Record) (onlyonce.Settlement, error) {
				if r.Result.Ref != "ch_7" || r.Result.Status != 504 {
					t.Errorf("asked about the ref %q and the status %d", r.Result.Ref, r.Result.Status)
				}
				return look()
			}})
			for range 3 {
				func() {
					defer func() { _ = recover() }()
					_, _ = onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
						onlyonce.Current(ctx).SetRef("ch_7")
						onlyonce.Current(ctx).SetStatus(504)
						return 0, onlyonce.Unknown(errDown)
					})
				}()
			}
			if r := lookup(t, store, request("k")); r.Attempt != 3 || r.State != onlyonce.StateUnknown || r.Result.Ref != "ch_7" || r.Result.Status != 504 {
				t.Errorf("record %+v", r)
			}
			again := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents, Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, nil
			}})
			_, err := onlyonce.Do(t.Context(), again, request("k"), func(context.Context) (int, error) { return 0, onlyonce.Unknown(errDown) })
			if r := lookup(t, store, request("k")); !errors.Is(err, errDown) || r.Result.Ref != "" || r.Result.Status != 0 {
				t.Errorf("error %v; an attempt that ran anew has the result %+v of another", err, r.Result)
			}
		})
	}
}

func TestReconcile_AStepTellsEveryLookWhenTheCallWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = time.Minute // that the other service takes
		var calls []time.Time
		g := onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.DiscardEvents, Reconcile: func(_ context.Context, r onlyonce.Record) (onlyonce.Settlement, error) {
			for _, stored := range r.Steps {
				var began time.Time
				if err := json.Unmarshal(stored, &began); err != nil || time.Since(began) < longest {
					return onlyonce.Settlement{}, errors.Join(errors.New("the call may still take effect"), err)
				}
			}
			return onlyonce.Settlement{}, nil
		}})
		for range 12 {
			_, _ = onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
				if _, err := onlyonce.Step(ctx, fmt.Sprint("call ", onlyonce.Current(ctx).Number()), func(context.Context) (time.Time, error) { return time.Now(), nil }); err != nil {
					return 0, err
				}
				calls = append(calls, time.Now())
				return 0, onlyonce.Unknown(errDown)
			})
			time.Sleep(longest / 4)
		}
		if len(calls) != 3 || calls[1].Sub(calls[0]) < longest || calls[2].Sub(calls[1]) < longest {
			t.Errorf("called at %v", calls)
		}
	})
}

func TestReconcile_ADecisionToRunThatComesAfterTheLeaseLeavesTheOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		store := newStore()
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		store.renew = down
		g := onlyonce.New(store, onlyonce.Config{Observer: log.observe, Reconcile: func(ctx context.Context, _ onlyonce.Record) (onlyonce.Settlement, error) {
			<-ctx.Done()
			return onlyonce.Settlement{}, nil
		}})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		if rec := lookup(t, store, request("k")); !errors.Is(err, onlyonce.ErrLost) || rec.State != onlyonce.StateUnknown || g.InFlight() != 0 {
			t.Errorf("error %v, record %+v, %d in flight", err, rec, g.InFlight())
		}
		log.expect(t, "taken_over", "unknown")
	})
}

// A call that was made after the first of the two claims may still take effect.
func TestReconcile_GetsTheStepsOfAnAttemptThatCameBetweenItsTwoClaims(t *testing.T) {
	store := newStore()
	run := func(reconcile func(context.Context, onlyonce.Record) (onlyonce.Settlement, error)) error {
		g := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents, Reconcile: reconcile})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			call := fmt.Sprint("call ", onlyonce.Current(ctx).Number())
			onlyonce.Current(ctx).SetRef(call)
			_, err := onlyonce.Step(ctx, call, func(context.Context) (int, error) { return 0, nil })
			return 0, onlyonce.Unknown(errors.Join(errDown, err))
		})
		return err
	}
	again := func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil }
	_ = run(again)
	claims := 0
	store.claim = func(do func() error) error {
		if claims++; claims == 2 { // the claim that takes over is slow
			_ = run(again)
		}
		return do()
	}
	err := run(func(_ context.Context, r onlyonce.Record) (onlyonce.Settlement, error) {
		if r.Attempt != 2 || r.State != onlyonce.StateUnknown || r.Steps["call 1"] == nil || r.Steps["call 2"] == nil || r.Result.Ref != "" || !strings.HasPrefix(r.Error, errDown.Error()) {
			t.Errorf("asked about %+v", r)
		}
		return onlyonce.Settlement{}, errors.New("call 2 may still take effect")
	})
	if !errors.Is(err, onlyonce.ErrUnknown) {
		t.Error(err)
	}
}

func TestReconcile_OnlyOneReconcileRunsForACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		asked := 0
		g := onlyonce.New(store, onlyonce.Config{Wait: time.Hour, Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
			asked++
			time.Sleep(10 * time.Minute)
			return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("7")}}, nil
		}})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, errors.New("ran") })
				if err != nil || a.Value != 7 {
					t.Errorf("response %+v, error %v", a, err)
				}
			})
		}
		all.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestReconcile_AReconcileThatPanicsLeavesTheOutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		g := onlyonce.New(store, onlyonce.Config{Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
			panic("a bug in the callback")
		}})
		expectPanic(t, "a bug in the callback", func() { _, _ = g.Begin(t.Context(), request("k")) })
		if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown || rec.KeepLeft != 0 {
			t.Fatalf("record %+v", rec)
		}
	})
}

func TestReconcile_AFailureAfterAStepThatIsNotStoredIsUnknownAndNotLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		crash(t, store, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		asked, runs := 0, 0
		g := onlyonce.New(store, onlyonce.Config{Reconcile: func(ctx context.Context, _ onlyonce.Record) (onlyonce.Settlement, error) {
			if asked++; asked > 1 {
				return onlyonce.Settlement{}, errDown
			}
			_, _ = onlyonce.Step(ctx, "void", func(context.Context) (chan int, error) { return make(chan int), nil })
			return onlyonce.Settlement{State: onlyonce.StateFailed, Error: "voided"}, nil
		}})
		_, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { runs++; return 1, nil })
		if rec := lookup(t, store, request("k")); !errors.Is(err, onlyonce.ErrUnknown) || asked != 1 || runs != 0 || rec.State != onlyonce.StateUnknown {
			t.Errorf("error %v, asked %d times, ran %d times, record %+v", err, asked, runs, rec)
		}
	})
}

func TestReconcile_AResultThatIsTooLargeLeavesTheOutcomeUnknownAndKeepsNoLease(t *testing.T) {
	large := strings.Repeat("x", 1<<10)
	for state, left := range map[onlyonce.State]onlyonce.State{
		onlyonce.StateCompleted: onlyonce.StateUnknown,
		onlyonce.StateFailed:    onlyonce.StateFailed,
		onlyonce.StateUnknown:   onlyonce.StateUnknown,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := smallStore{newStore()}
			crash(t, store, request("k"), time.Second)
			time.Sleep(2 * time.Second)
			g := onlyonce.New(store, onlyonce.Config{KeepFailures: true, Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{State: state, Result: onlyonce.Result{Body: []byte(large)}, Error: "too much"}, nil
			}})
			a, err := g.Begin(t.Context(), request("k"))
			switch {
			case left == onlyonce.StateUnknown && !errors.Is(err, onlyonce.ErrUnknown):
				t.Errorf("%s: got %+v and error %v", state, a, err)
			case state == onlyonce.StateCompleted && !errors.Is(err, onlyonce.ErrTooLarge):
				t.Errorf("%s: error %v does not say why", state, err)
			case left == onlyonce.StateFailed && (err != nil || !errors.Is(a.Err(), onlyonce.ErrFailed)):
				t.Errorf("%s: got %+v and error %v", state, a, err)
			}
			if rec := lookup(t, store, request("k")); rec.State != left {
				t.Errorf("%s: record %+v", state, rec)
			}
		})
	}
}

// A smallStore takes no results.
type smallStore struct{ onlyonce.Store }

func (s smallStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if len(st.Result.Body) > 0 {
		return onlyonce.ErrTooLarge
	}
	return s.Store.Settle(ctx, h, st)
}

func TestReconcile_ACorruptRecordCountsAsUnknown(t *testing.T) {
	corrupt := func(r *onlyonce.Record) {
		if r.Owner == "dead process" {
			r.State, r.Corrupt, r.Error = onlyonce.StateUnknown, true, "bad header"
		}
	}
	for _, hold := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var log eventLog
			store := newStore()
			store.alter = corrupt
			crash(t, store, request("k"), time.Second)
			time.Sleep(2 * time.Second)
			g := onlyonce.New(store, onlyonce.Config{HoldUnknown: hold, Observer: log.observe})
			a, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 2, nil })
			if hold {
				if !errors.Is(err, onlyonce.ErrUnknown) || !errors.Is(err, onlyonce.ErrCorrupt) {
					t.Errorf("error %v", err)
				}
				log.expect(t, "corrupt", "held")
				return
			}
			if err != nil || a.Attempt != 2 {
				t.Errorf("response %+v, error %v", a, err)
			}
			log.expect(t, "corrupt", "taken_over", "executed")
		})
	}
}
