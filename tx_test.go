package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestDoTx_RowsAndResponseAreOneCommit(t *testing.T) {
	var log eventLog
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
	runs := 0
	order := func(ctx context.Context, tx entry) (string, error) {
		runs++
		a := onlyonce.Current(ctx)
		a.SetRef("ord_1")
		if a.Number() != runs || a.Fence() == 0 {
			t.Errorf("attempt %d, fence %d", a.Number(), a.Fence())
		}
		tx["ord_1"] = runs
		if runs == 1 {
			return "", errors.New("out of stock")
		}
		return "ord_1", nil
	}
	if _, err := onlyonce.DoTx(t.Context(), g, request("k"), order); err == nil || err.Error() != "out of stock" {
		t.Fatalf("error %v", err)
	}
	if rec := lookup(t, l, request("k")); l.row("ord_1") != 0 || rec.State != onlyonce.StateFailed || rec.Error != "out of stock" {
		t.Fatalf("row %d, record %+v", l.row("ord_1"), rec)
	}
	for range 2 {
		a, err := onlyonce.DoTx(t.Context(), g, request("k"), order)
		if err != nil || a.Value != "ord_1" || a.Ref != "ord_1" || a.Attempt != 2 || l.row("ord_1") != 2 {
			t.Fatalf("response %+v, error %v, row %d", a, err, l.row("ord_1"))
		}
	}
	log.expect(t, "failed", "executed", "replayed")
}

// An operator must see a command whose commit is in doubt.
func TestDoTx_ATransactionThatTheStoreDoesNotConfirmIsObserved(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   func(func() error) error
		want    error
		outcome onlyonce.Outcome
		state   onlyonce.State
		rows    int
	}{
		{"it was committed, and nobody knows", func(do func() error) error { return errors.Join(onlyonce.ErrInDoubt, lossy(do)) }, onlyonce.ErrInDoubt, "unknown", onlyonce.StateUnknown, 1},
		{"it was not, and nobody knows", func(do func() error) error { return errors.Join(onlyonce.ErrInDoubt, down(do)) }, onlyonce.ErrInDoubt, "unknown", onlyonce.StateUnknown, 0},
		{"it was not, and the store knows", down, onlyonce.ErrUnavailable, "failed", onlyonce.StateFailed, 0},
		{"another claim has overtaken it", func(func() error) error { return onlyonce.ErrLost }, onlyonce.ErrLost, "lost", onlyonce.StateFailed, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log eventLog
			l := newLedger()
			g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
			l.set(func() { l.settle = times(1, c.fault) })
			_, err := onlyonce.DoTx(t.Context(), g, request("k"), func(_ context.Context, tx entry) (int, error) {
				tx["x"] = 1
				return 1, nil
			})
			if !errors.Is(err, c.want) || l.row("x") != c.rows {
				t.Fatalf("error %v, row %d", err, l.row("x"))
			}
			log.expect(t, c.outcome)
			if e := log.events[0]; e.Err == nil || e.Record.State != c.state || e.Record.ID != request("k").ID {
				t.Errorf("the event is %+v", e)
			}
		})
	}
}

func TestDoTx_ACommitInDoubtIsReportedToACallerWhoseContextHasEnded(t *testing.T) {
	l := newLedger()
	l.settle = func(do func() error) error { return errors.Join(onlyonce.ErrInDoubt, lossy(do)) }
	ctx, end := context.WithCancel(t.Context())
	_, err := onlyonce.DoTx(ctx, onlyonce.NewTx(l, onlyonce.Config{}), request("k"), func(context.Context, entry) (int, error) {
		end()
		return 1, nil
	})
	if !errors.Is(err, onlyonce.ErrInDoubt) {
		t.Fatalf("error %v", err)
	}
}

func TestDoTx_APanicInATransactionLeavesNothing(t *testing.T) {
	var log eventLog
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
	expectPanic(t, "boom", func() {
		_, _ = onlyonce.DoTx(t.Context(), g, request("k"), func(_ context.Context, tx entry) (int, error) {
			tx["x"] = 1
			panic("boom")
		})
	})
	if _, err := l.Lookup(t.Context(), request("k").ID); !errors.Is(err, onlyonce.ErrNotFound) || l.row("x") != 0 {
		t.Fatalf("lookup: %v", err)
	}
	log.expect(t, "failed")
}

func TestDoTx_ADuplicateOfARunningTransactionWaitsOrIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{})
		slow := func(context.Context, entry) (int, error) { time.Sleep(5 * time.Second); return 1, nil }
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() {
			if _, err := onlyonce.DoTx(t.Context(), g, request("k"), slow); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if _, err := onlyonce.DoTx(t.Context(), g, request("k"), slow); !errors.Is(err, onlyonce.ErrInFlight) {
			t.Errorf("error %v", err)
		}
		patient := request("k")
		patient.Wait = time.Minute
		began := time.Now()
		a, err := onlyonce.DoTx(t.Context(), g, patient, slow)
		if err != nil || !a.Replayed || time.Since(began) != 5*time.Second {
			t.Errorf("response %+v, error %v after %v", a, err, time.Since(began))
		}
	})
}

func TestDoTx_ATransactionOutlivesItsCallerButNotItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{Lease: 30 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		_, err := onlyonce.DoTx(ctx, g, request("k"), func(ctx context.Context, _ entry) (int, error) {
			cancel()
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 30*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		if rec := lookup(t, l, request("k")); rec.State != onlyonce.StateFailed {
			t.Errorf("what was rolled back is recorded as %v", rec.State)
		}
	})
}

func TestDoTx_ATransactionMayReleaseItsCommand(t *testing.T) {
	for _, failed := range []error{nil, errors.New("out of stock")} {
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{})
		runs := 0
		_, err := g.BeginTx(t.Context(), request("k"), func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
			runs++
			tx["x"] = 1
			return onlyonce.Settlement{}, failed
		})
		if err != failed || runs != 1 || (l.row("x") == 1) != (failed == nil) {
			t.Errorf("error %v, %d runs, row %d", err, runs, l.row("x"))
		}
		if _, err := l.Lookup(t.Context(), request("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("lookup: %v", err)
		}
	}
}

func TestDoTx_ReconcileComesBeforeATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		l := newLedger()
		crash(t, l, request("k"), time.Second)
		time.Sleep(2 * time.Second)
		g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe, Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
			return onlyonce.Settlement{}, nil
		}})
		for range 2 {
			a, err := onlyonce.DoTx(t.Context(), g, request("k"), func(_ context.Context, tx entry) (int, error) { tx["x"]++; return 1, nil })
			if err != nil || a.Value != 1 || a.Attempt != 2 || l.row("x") != 1 {
				t.Errorf("response %+v, error %v, row %d", a, err, l.row("x"))
			}
		}
		log.expect(t, "taken_over", "executed", "replayed")
	})
}

func TestDoTx_AnAttemptCanSettleWithItsRows(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Keep: time.Hour})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("try again")
	err = g.SettleTx(t.Context(), a, func(context.Context, entry) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, broken })
	if err != broken {
		t.Fatalf("error %v", err)
	}
	done := onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("1")}}
	err = g.SettleTx(t.Context(), a, func(ctx context.Context, tx entry) (onlyonce.Settlement, error) {
		onlyonce.Current(ctx).SetRef("ch_1")
		tx["x"] = 1
		return done, nil
	})
	rec := lookup(t, l, request("k"))
	if err != nil || l.row("x") != 1 || rec.State != onlyonce.StateCompleted || rec.Result.Ref != "ch_1" || rec.KeepLeft <= 0 {
		t.Fatalf("error %v, record %+v", err, rec)
	}
	if err := a.Settle(t.Context(), done); err == nil {
		t.Fatal("settled twice")
	}
}

func TestDoTx_RowsOfALostAttemptAreRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log eventLog
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{Lease: time.Second, Observer: log.observe})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if _, err := onlyonce.DoTx(t.Context(), g, request("k"), func(_ context.Context, tx entry) (int, error) { tx["x"] = 2; return 2, nil }); err != nil {
			t.Fatal(err)
		}
		err = g.SettleTx(t.Context(), a, func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
			tx["x"] = 1
			return onlyonce.Settlement{State: onlyonce.StateCompleted}, nil
		})
		if !errors.Is(err, onlyonce.ErrLost) || l.row("x") != 2 {
			t.Fatalf("error %v, row %d", err, l.row("x"))
		}
		log.expect(t, "taken_over", "executed", "lost")
	})
}

// Only the store can know the outcome of its transaction: another call that settles the
// attempt has the same hold.
func TestDoTx_ACommitThatWasLostIsNeverCalledASuccess(t *testing.T) {
	answered := func(body string) onlyonce.Settlement {
		return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(body)}}
	}
	inDoubt := func(fault func(func() error) error) func(func() error) error {
		return func(do func() error) error { return errors.Join(onlyonce.ErrInDoubt, fault(do)) }
	}
	for _, c := range []struct {
		name    string
		fault   func(func() error) error
		rival   bool // settles the attempt meanwhile
		want    error
		outcome onlyonce.Outcome
		again   int // the response of a repeat
		rows    int
	}{
		{"it came through, and nobody knows", inDoubt(lossy), false, onlyonce.ErrInDoubt, "unknown", 1, 1},
		{"it did not, and nobody knows", inDoubt(down), false, onlyonce.ErrInDoubt, "unknown", 2, 2},
		{"it did not, and the store knows", down, false, onlyonce.ErrUnavailable, "failed", 2, 2},
		{"another settlement came through, and nobody knows", inDoubt(down), true, onlyonce.ErrInDoubt, "unknown", 3, 0},
		{"another settlement came through, and the store knows", down, true, onlyonce.ErrUnavailable, "failed", 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log eventLog
			l := newLedger()
			g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
			a, err := g.Begin(t.Context(), request("k"))
			if err != nil {
				t.Fatal(err)
			}
			l.set(func() {
				l.settle = times(1, func(do func() error) error {
					if c.rival {
						rec := a.Record()
						s := answered("3")
						s.Keep = time.Hour
						if err := l.Store.Settle(t.Context(), onlyonce.Hold{ID: rec.ID, Owner: rec.Owner, Fence: rec.Fence}, s); err != nil {
							t.Error(err)
						}
					}
					return c.fault(do)
				})
			})
			err = g.SettleTx(t.Context(), a, func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
				tx["x"] = 1
				return answered("1"), nil
			})
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			again, err := onlyonce.DoTx(t.Context(), g, request("k"), func(_ context.Context, tx entry) (int, error) {
				tx["x"] = 2
				return 2, nil
			})
			if err != nil || again.Value != c.again || l.row("x") != c.rows {
				t.Fatalf("again: %+v, %v, row %d", again, err, l.row("x"))
			}
			if log.events[0].Outcome != c.outcome {
				t.Fatalf("events %+v", log.events)
			}
		})
	}
}

// Its rows may be committed without a response. This is so after a statement by which MySQL commits
// implicitly.
func TestSettleTx_TheOutcomeOfAFunctionThatEndsItsOwnTransactionIsUnknown(t *testing.T) {
	var log eventLog
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{HoldUnknown: true, Observer: log.observe})
	runs := 0
	for range 2 {
		_, err := onlyonce.Do(t.Context(), g.Guard, request("k"), func(ctx context.Context) (int, error) {
			return 1, g.SettleTx(ctx, onlyonce.Current(ctx), func(_ context.Context, tx entry) (onlyonce.Settlement, error) {
				runs++
				tx["x"] = runs
				l.commit(tx)
				l.set(func() { l.settle = times(1, func(func() error) error { return onlyonce.ErrUnknown }) })
				return onlyonce.Settlement{State: onlyonce.StateCompleted}, nil
			})
		})
		if !errors.Is(err, onlyonce.ErrUnknown) {
			t.Errorf("error %v", err)
		}
	}
	if rec := lookup(t, l, request("k")); runs != 1 || rec.State != onlyonce.StateUnknown || rec.KeepLeft != 0 {
		t.Errorf("%d runs, record %+v", runs, rec)
	}
	log.expect(t, "unknown", "held")
}

func TestDoTx_AnAttemptIsSettledByItsOwnGuard(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	settle := func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{State: onlyonce.StateCompleted}, nil
	}
	elsewhere := func(context.Context, entry) (onlyonce.Settlement, error) {
		t.Error("ran")
		return onlyonce.Settlement{}, nil
	}
	if err := onlyonce.NewTx(newLedger(), onlyonce.Config{}).SettleTx(t.Context(), a, elsewhere); err == nil || !strings.Contains(err.Error(), "another Guard") {
		t.Errorf("error %v", err)
	}
	if err := g.SettleTx(t.Context(), a, settle); err != nil {
		t.Error(err)
	}
}

func TestDoTx_ATransactionOfItsOwnIsNotRemembered(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{})
	undone := errors.New("undone")
	for row, want := range map[string]error{"kept": nil, "undone": undone} {
		if err := g.Transact(t.Context(), func(_ context.Context, tx entry) error { tx[row] = 1; return want }); !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	for r := range l.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("there is a record: %+v", r)
	}
	if l.row("kept") != 1 || l.row("undone") != 0 {
		t.Errorf("rows %d and %d", l.row("kept"), l.row("undone"))
	}
}

func TestDoTx_AStepInsideATransactionIsAnError(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{})
	ran := false
	_, err := onlyonce.DoTx(t.Context(), g, request("k"), func(ctx context.Context, _ entry) (int, error) {
		return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { ran = true; return 1, nil })
	})
	if err == nil || ran {
		t.Fatalf("ran %v, error %v", ran, err)
	}
}

func TestSettleTx_AStepInsideItsFunctionIsAnErrorAndDoesNotRun(t *testing.T) {
	g := onlyonce.NewTx(newLedger(), onlyonce.Config{})
	rolledBack := errors.New("out of stock")
	charges := 0
	charge := func(ctx context.Context) (int, error) {
		return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { charges++; return charges, nil })
	}
	a, err := onlyonce.Do(t.Context(), g.Guard, request("k"), func(outer context.Context) (int, error) {
		err := g.SettleTx(outer, onlyonce.Current(outer), func(inner context.Context, _ entry) (onlyonce.Settlement, error) {
			for _, ctx := range []context.Context{inner, outer} { // httponce.InTx passes no context
				if _, err := charge(ctx); err == nil || charges != 0 {
					t.Errorf("%d charges, error %v", charges, err)
				}
			}
			return onlyonce.Settlement{}, rolledBack
		})
		if !errors.Is(err, rolledBack) {
			t.Errorf("error %v", err)
		}
		return charge(outer)
	})
	if err != nil || a.Value != 1 {
		t.Errorf("answer %+v, error %v", a, err)
	}
}

func TestDoTx_AStepInsideATransactionIsAnErrorAfterReconcileToo(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Reconcile: func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{}, nil
	}})
	unknown := onlyonce.Unknown(errors.New("no response"))
	if _, err := onlyonce.Do(t.Context(), g.Guard, request("k"), func(context.Context) (int, error) { return 0, unknown }); err != unknown {
		t.Fatal(err)
	}
	ran := false
	_, err := onlyonce.DoTx(t.Context(), g, request("k"), func(ctx context.Context, _ entry) (int, error) {
		return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { ran = true; return 1, nil })
	})
	if err == nil || ran {
		t.Fatalf("ran %v, error %v", ran, err)
	}
}

func TestDoTx_AnAttemptOutlivesATransactionThatNeverBegan(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(unreachable{l}, onlyonce.Config{})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	err = g.SettleTx(t.Context(), a, func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{State: onlyonce.StateCompleted}, nil
	})
	if !errors.Is(err, onlyonce.ErrUnavailable) || !errors.Is(err, errDown) {
		t.Fatalf("error %v", err)
	}
	if err := a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateFailed}); err != nil {
		t.Fatal(err)
	}
}

// unreachable is a ledger whose transactions do not begin.
type unreachable struct{ *ledger }

func (unreachable) SettleTx(context.Context, onlyonce.Hold, func(context.Context, entry) (onlyonce.Settlement, error)) error {
	return errDown
}

func TestDoTx_ATransactionWaitsForItsTurnNoLongerThanTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(busy{l}, onlyonce.Config{Lease: 10 * time.Second})
		began := time.Now()
		_, err := onlyonce.DoTx(t.Context(), g, request("k"), func(context.Context, entry) (int, error) { return 1, nil })
		if !errors.Is(err, onlyonce.ErrUnavailable) || time.Since(began) != 10*time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// busy is a ledger whose writer is never free.
type busy struct{ *ledger }

func (busy) RunTx(ctx context.Context, _ onlyonce.Claim, _ func(context.Context, entry, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	<-ctx.Done()
	return onlyonce.Record{}, ctx.Err()
}

// SettleTx is RunTx's, for the command of an attempt.
func (busy) SettleTx(ctx context.Context, _ onlyonce.Hold, _ func(context.Context, entry) (onlyonce.Settlement, error)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestDoTx_ASettlementInATransactionWaitsForItsTurnNoLongerThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(busy{l}, onlyonce.Config{Lease: 10 * time.Second})
		a, err := g.Begin(t.Context(), request("k"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := a.Context(t.Context())
		defer stop()
		began := time.Now()
		err = g.SettleTx(ctx, a, func(context.Context, entry) (onlyonce.Settlement, error) {
			t.Error("ran")
			return onlyonce.Settlement{}, nil
		})
		if took := time.Since(began); took != 10*time.Second || !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("waited %v, error %v", took, err)
		}
		if err := a.Settle(ctx, onlyonce.Settlement{}); err != nil {
			t.Error(err)
		}
	})
}

func TestDoTx_ATransactionOfACallerThatIsGoneDoesNotBegin(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran := false
	_, err := onlyonce.DoTx(ctx, g, request("k"), func(context.Context, entry) (int, error) { ran = true; return 1, nil })
	if !errors.Is(err, context.Canceled) || ran {
		t.Fatalf("ran %v, error %v", ran, err)
	}
}

func TestDoTx_AValueThatCannotBeStoredFailsATransaction(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{HoldUnknown: true})
	_, err := onlyonce.DoTx(t.Context(), g, request("k"), func(_ context.Context, tx entry) (chan int, error) { tx["x"] = 1; return make(chan int), nil })
	if rec := lookup(t, l, request("k")); err == nil || rec.State != onlyonce.StateFailed || l.row("x") != 0 {
		t.Fatalf("error %v, record %+v", err, rec)
	}
}

// A conflict is a ledger that undoes the first run of every function, and then lets something else
// happen before the next one.
type conflict struct {
	*ledger
	between func() error
}

func (c conflict) RunTx(ctx context.Context, claim onlyonce.Claim, fn func(context.Context, entry, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	_, _ = fn(ctx, entry{}, claim.Next(nil))
	if err := c.between(); err != nil {
		return onlyonce.Record{}, err
	}
	return c.ledger.RunTx(ctx, claim, fn)
}

func (c conflict) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, entry) (onlyonce.Settlement, error)) error {
	_, _ = fn(ctx, entry{})
	if err := c.between(); err != nil {
		return err
	}
	return c.ledger.SettleTx(ctx, h, fn)
}

// The error of a run that the database has undone decides nothing: not after the command has
// been completed elsewhere, and not if the store then can't be reached.
func TestDoTx_TheErrorOfARunThatWasUndoneIsNotTheCommands(t *testing.T) {
	l := newLedger()
	var log eventLog
	deadlock := errors.New("deadlock")
	loses := func(context.Context, entry) (int, error) { return 0, deadlock }
	wins := func(context.Context, entry) (int, error) { return 7, nil }
	g := onlyonce.NewTx(conflict{l, func() error {
		_, err := onlyonce.DoTx(t.Context(), onlyonce.NewTx(l, onlyonce.Config{}), request("k"), wins)
		return err
	}}, onlyonce.Config{Observer: log.observe})
	if a, err := onlyonce.DoTx(t.Context(), g, request("k"), loses); err != nil || a.Value != 7 || !a.Replayed {
		t.Errorf("after another attempt has completed the command: %+v, error %v", a, err)
	}
	log.expect(t, "replayed")
	g = onlyonce.NewTx(conflict{l, func() error { return errDown }}, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	if _, err := onlyonce.DoTx(t.Context(), g, request("l"), loses); !errors.Is(err, onlyonce.ErrUnavailable) || errors.Is(err, deadlock) {
		t.Errorf("while the store is down: error %v", err)
	}
	if err := g.Transact(t.Context(), func(context.Context, entry) error { return deadlock }); !errors.Is(err, onlyonce.ErrUnavailable) || errors.Is(err, deadlock) {
		t.Errorf("while the store is down, without a key: error %v", err)
	}
}

func TestDoTx_ARunThatWasUndoneIsNotTheEndOfAnAttempt(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(conflict{l, func() error { return errDown }}, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	err = g.SettleTx(t.Context(), a, func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{State: onlyonce.StateFailed, Error: "deadlock", Final: true}, errors.New("deadlock")
	})
	if rec := lookup(t, l, request("k")); !errors.Is(err, onlyonce.ErrUnavailable) || rec.State != onlyonce.StateFailed || rec.Final {
		t.Errorf("error %v, record %+v", err, rec)
	}
}

// What a run has said that the database has undone is about rows that do not exist.
func TestDoTx_TheRefAndTheStatusOfARunThatWasUndoneAreNotRecorded(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(conflict{l, func() error { return nil }}, onlyonce.Config{})
	runs := 0
	first := func(ctx context.Context) {
		if runs++; runs == 1 {
			onlyonce.Current(ctx).SetRef("undone")
			onlyonce.Current(ctx).SetStatus(201)
		}
	}
	answer, err := onlyonce.DoTx(t.Context(), g, request("k"), func(ctx context.Context, _ entry) (int, error) {
		first(ctx)
		return 7, nil
	})
	if r := lookup(t, l, request("k")).Result; err != nil || runs != 2 || answer.Ref != "" || answer.Status != 0 || r.Ref != "" || r.Status != 0 {
		t.Errorf("DoTx: error %v, %d runs, answer %+v, result %+v", err, runs, answer, r)
	}
	runs = 0
	_, err = onlyonce.Do(t.Context(), g.Guard, request("l"), func(ctx context.Context) (int, error) {
		onlyonce.Current(ctx).SetRef("before")
		onlyonce.Current(ctx).SetStatus(202)
		return 7, g.SettleTx(ctx, onlyonce.Current(ctx), func(ctx context.Context, _ entry) (onlyonce.Settlement, error) {
			first(ctx)
			return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("7")}}, nil
		})
	})
	if r := lookup(t, l, request("l")).Result; err != nil || runs != 2 || r.Ref != "before" || r.Status != 202 {
		t.Errorf("SettleTx: error %v, %d runs, result %+v", err, runs, r)
	}
}

func TestSettleTx_TheRefAndTheStatusOfRowsThatItsFunctionRejectedAreNotRecorded(t *testing.T) {
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{})
	soldOut := errors.New("sold out")
	_, err := onlyonce.Do(t.Context(), g.Guard, request("k"), func(ctx context.Context) (string, error) {
		a := onlyonce.Current(ctx)
		a.SetRef("before")
		a.SetStatus(202)
		if err := g.SettleTx(ctx, a, func(context.Context, entry) (onlyonce.Settlement, error) {
			a.SetRef("undone")
			a.SetStatus(201)
			return onlyonce.Settlement{}, soldOut
		}); err != soldOut {
			t.Error(err)
		}
		return "on the waiting list", nil
	})
	if r := lookup(t, l, request("k")).Result; err != nil || r.Ref != "before" || r.Status != 202 {
		t.Errorf("error %v, result %+v", err, r)
	}
}

// A failure that the store did not take when it rolled the rows back is recorded later, as after Do.
func TestDoTx_AFailureThatIsNotRecordedAtOnceIsRecordedOrReported(t *testing.T) {
	declined := errors.New("declined")
	var log eventLog
	l := newLedger()
	g := onlyonce.NewTx(l, onlyonce.Config{Observer: log.observe})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	l.set(func() { l.settle = times(1, down) })
	err = g.SettleTx(t.Context(), a, func(context.Context, entry) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{State: onlyonce.StateFailed, Error: "declined", Final: true}, declined
	})
	if rec := lookup(t, l, request("k")); err != declined || rec.State != onlyonce.StateFailed || !rec.Final {
		t.Errorf("error %v, record %+v", err, rec)
	}
	l.set(func() { l.settle = times(1, down) })
	if _, err := onlyonce.DoTx(t.Context(), g, request("l"), func(context.Context, entry) (int, error) { return 0, declined }); err != declined {
		t.Errorf("error %v", err)
	}
	l.set(func() { l.settle = times(1, func(func() error) error { return onlyonce.ErrLost }) })
	if _, err := onlyonce.DoTx(t.Context(), g, request("m"), func(context.Context, entry) (int, error) { return 0, declined }); !errors.Is(err, declined) || !errors.Is(err, onlyonce.ErrLost) {
		t.Errorf("error %v", err)
	}
	log.expect(t, "failed", "unrecorded", "lost")
}
