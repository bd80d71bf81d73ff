package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestStep_AFinishedStepIsNotRunAgainByALaterAttempt(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	charges, mails := 0, 0
	broken := errors.New("mail server is down")
	order := func(ctx context.Context) (string, error) {
		id, err := onlyonce.Step(ctx, "charge", func(context.Context) (string, error) { charges++; return "ch_1", nil })
		if err != nil {
			return "", err
		}
		_, err = onlyonce.Step(ctx, "mail", func(context.Context) (bool, error) {
			if mails++; mails == 1 {
				return false, broken
			}
			return true, nil
		})
		return id, err
	}
	if _, err := onlyonce.Do(t.Context(), g, request("k"), order); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	a, err := onlyonce.Do(t.Context(), g, request("k"), order)
	if err != nil || a.Value != "ch_1" || a.Attempt != 2 || charges != 1 || mails != 2 {
		t.Fatalf("response %+v, error %v, %d charges, %d mails", a, err, charges, mails)
	}
}

func TestStep_ARerunThatKeepFailuresRejectsKeepsItsStepsUntilItIsOff(t *testing.T) {
	store := newStore()
	charges := 0
	order := func(outcome error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			id, err := onlyonce.Step(ctx, "charge", func(context.Context) (string, error) { charges++; return "ch_1", nil })
			return id, errors.Join(err, outcome)
		}
	}
	guard := func(keepFailures bool) *onlyonce.Guard {
		return onlyonce.New(store, onlyonce.Config{HoldUnknown: true, KeepFailures: keepFailures})
	}
	broken := errors.New("the mail server did not respond")
	if _, err := onlyonce.Do(t.Context(), guard(true), request("k"), order(onlyonce.Unknown(broken))); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	rerun := onlyonce.Settlement{State: onlyonce.StateFailed, Keep: time.Hour}
	if err := store.Resolve(t.Context(), lookup(t, store, request("k")), rerun); err != nil {
		t.Fatal(err)
	}
	if _, err := onlyonce.Do(t.Context(), guard(true), request("k"), order(nil)); !errors.Is(err, onlyonce.ErrFailed) {
		t.Errorf("with KeepFailures: %v", err)
	}
	a, err := onlyonce.Do(t.Context(), guard(false), request("k"), order(nil))
	if err != nil || a.Value != "ch_1" || charges != 1 {
		t.Errorf("without KeepFailures: %+v, %v, %d charges", a, err, charges)
	}
}

func TestStep_AReleaseKeepsStepsThatRan(t *testing.T) {
	store := newStore()
	g := onlyonce.New(store, onlyonce.Config{})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := a.Context(t.Context())
	defer stop()
	if _, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
		t.Fatal(err)
	}
	if err := a.Settle(ctx, onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateFailed || rec.Steps["charge"] == nil {
		t.Fatalf("record %+v", rec)
	}
}

func TestStep_AReleaseAfterAStepThatIsNotStoredLeavesTheOutcomeUnknown(t *testing.T) {
	store := newStore()
	store.set(func() { store.renew = func(func() error) error { return onlyonce.ErrTooLarge } })
	g := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
	a, err := g.Begin(t.Context(), request("k"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := a.Context(t.Context())
	defer stop()
	if _, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }); err == nil {
		t.Fatal("the step is stored")
	}
	if err := a.Settle(ctx, onlyonce.Settlement{}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Begin(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUnknown) {
		t.Errorf("a repeat got error %v", err)
	}
}

// A handler turns the error of a step into a status, and many functions wrap it without its mark.
func TestStep_AFailureAfterAStepThatIsNotStoredIsHeldForAPerson(t *testing.T) {
	for name, step := range map[string]func(context.Context){
		"the store rejects it": func(ctx context.Context) {
			_, _ = onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
		},
		"its value is not JSON": func(ctx context.Context) {
			_, _ = onlyonce.Step(ctx, "charge", func(context.Context) (float64, error) { return math.NaN(), nil })
		},
		"it is still running": func(ctx context.Context) {
			began, end := make(chan bool), make(chan bool)
			t.Cleanup(func() { close(end) })
			go func() {
				_, _ = onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { close(began); <-end; return 1, nil })
			}()
			<-began
		},
		"its panic is recovered": func(ctx context.Context) {
			defer func() { _ = recover() }()
			_, _ = onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { panic("boom") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			store.set(func() { store.renew = func(func() error) error { return onlyonce.ErrTooLarge } })
			g := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
			if _, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
				step(ctx)
				return 0, errors.New("status 502")
			}); err == nil || err.Error() != "status 502" {
				t.Fatalf("error %v", err)
			}
			if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { t.Error("ran again"); return 0, nil }); !errors.Is(err, onlyonce.ErrUnknown) {
				t.Errorf("a repeat got error %v", err)
			}
			if rec := lookup(t, store, request("k")); !strings.Contains(rec.Error, "status 502") || rec.KeepLeft != 0 {
				t.Errorf("record %+v", rec)
			}
		})
	}
}

func TestStep_AFinalFailureStaysOneAfterAStepThatIsNotStored(t *testing.T) {
	store := newStore()
	store.set(func() { store.renew = func(func() error) error { return onlyonce.ErrTooLarge } })
	g := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
	fn := func(ctx context.Context) (int, error) {
		_, _ = onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
		return 0, onlyonce.Final(errors.New("declined"))
	}
	_, _ = onlyonce.Do(t.Context(), g, request("k"), fn)
	if _, err := onlyonce.Do(t.Context(), g, request("k"), fn); !errors.Is(err, onlyonce.ErrFailed) {
		t.Errorf("a repeat got error %v", err)
	}
}

func TestStep_AStepThatIsNotStoredMakesTheOutcomeUnknown(t *testing.T) {
	for name, renew := range map[string]func(func() error) error{
		"lost": func(func() error) error { return onlyonce.ErrLost },
		"down": down,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				store.set(func() { store.renew = renew })
				g := onlyonce.New(store, onlyonce.Config{})
				_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
					return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
				})
				if err == nil || lookup(t, store, request("k")).State != onlyonce.StateUnknown {
					t.Fatalf("error %v", err)
				}
			})
		})
	}
}

func TestStep_AStepIsStoredThoughTheStoreStumbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.set(func() { store.renew = times(3, lossy) })
		g := onlyonce.New(store, onlyonce.Config{})
		if _, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
		}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStep_AStepOutsideAnAttemptIsAnError(t *testing.T) {
	ran := false
	_, err := onlyonce.Step(t.Context(), "charge", func(context.Context) (int, error) { ran = true; return 1, nil })
	if err == nil || ran {
		t.Fatalf("ran %v, error %v", ran, err)
	}
}

func TestStep_ADownstreamKeyIsTheSameOnEveryAttempt(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	keys := func(key string) (charge, refund string) {
		a, err := g.Begin(t.Context(), request(key))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Settle(t.Context(), onlyonce.Settlement{State: onlyonce.StateFailed}) }()
		return a.Key("charge"), a.Key("refund")
	}
	charge1, refund1 := keys("k")
	charge2, refund2 := keys("k")
	other, _ := keys("l")
	if charge1 != charge2 || refund1 != refund2 || charge1 == refund1 || charge1 == other || len(charge1) != 32 {
		t.Fatalf("%s %s, %s %s, %s", charge1, refund1, charge2, refund2, other)
	}
}

func TestStep_AStepIsStoredAlthoughAConnectionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		tries := 0
		store.renewSteps = func(ctx context.Context, do func() error) error {
			if tries++; tries == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return do()
		}
		g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second})
		began := time.Now()
		if _, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 7, nil })
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); tries != 2 || took > 15*time.Second {
			t.Errorf("stored after %d tries in %v", tries, took)
		}
	})
}

func TestStep_AStepThatTheStoreNeverTakesEndsWithAnUnknownOutcome(t *testing.T) {
	for name, reject := range map[string]func(context.Context) error{
		"rejected": func(context.Context) error { return errDown },
		"silent":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				store.renewSteps = func(ctx context.Context, _ func() error) error { return reject(ctx) }
				g := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second})
				began := time.Now()
				_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
					return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 7, nil })
				})
				if took := time.Since(began); err == nil || took > 31*time.Second {
					t.Errorf("error %v after %v", err, took)
				}
				if rec := lookup(t, store, request("k")); rec.State != onlyonce.StateUnknown {
					t.Errorf("record %+v", rec)
				}
			})
		})
	}
}

func TestStep_AStepDoesNotRunOnceItsAttemptIsOver(t *testing.T) {
	for name, over := range map[string]struct {
		end  func(a *onlyonce.Attempt, store *faultyStore)
		want string
	}{
		"lost": {func(_ *onlyonce.Attempt, store *faultyStore) {
			store.set(func() { store.renew = down })
			time.Sleep(time.Minute)
		}, "the lease was lost"},
		"settled": {func(a *onlyonce.Attempt, _ *faultyStore) {
			_ = a.Settle(context.Background(), onlyonce.Settlement{State: onlyonce.StateCompleted})
		}, "settled before"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				a, err := onlyonce.New(store, onlyonce.Config{Lease: 30 * time.Second}).Begin(t.Context(), request("k"))
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := a.Context(t.Context())
				defer stop()
				over.end(a, store)
				if _, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { t.Error("ran"); return 7, nil }); err == nil || !strings.Contains(err.Error(), over.want) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

func TestStep_ALeaseIsCountedFromBeforeTheStoreWasCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 24 * time.Second
		store := newStore()
		store.renew = down
		store.renewSteps = func(_ context.Context, do func() error) error { err := do(); time.Sleep(lease / 4); return err }
		g := onlyonce.New(store, onlyonce.Config{Lease: lease})
		began := time.Now()
		_, _ = onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
			if _, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 7, nil }); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if took := time.Since(began); took != lease*3/4 {
				t.Errorf("the context ended after %v, want 18s: the response took 6s of the lease", took)
			}
			return 0, context.Cause(ctx)
		})
	})
}

func TestStep_ASecondStepOfTheSameNameIsAnErrorAndNotTheFirstOnesValue(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	var charged []string
	broken := true
	order := func(ctx context.Context) (string, error) {
		for _, line := range []string{"lamp", "desk"} {
			charge := func(context.Context) (string, error) {
				if broken {
					return "", errors.New("the bank is closed")
				}
				charged = append(charged, line)
				return "paid " + line, nil
			}
			if _, err := onlyonce.Step(ctx, "charge", charge); broken {
				broken = false // a step that returned an error may run again in its attempt
				_, err = onlyonce.Step(ctx, "charge", charge)
				if err != nil {
					return "", err
				}
			} else if err != nil {
				return "", err
			}
		}
		return "all paid", nil
	}
	for attempt := range 2 {
		a, err := onlyonce.Do(t.Context(), g, request("k"), order)
		if err == nil || !strings.Contains(err.Error(), "a name of its own") || len(charged) != 1 {
			t.Fatalf("attempt %d: response %+v, error %v, charged %q", attempt+1, a, err, charged)
		}
	}
}

func TestStep_OfTwoStepsOfOneNameAtTheSameTimeOnlyOneRuns(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	charges := 0
	_, err := onlyonce.Do(t.Context(), g, request("k"), func(ctx context.Context) (int, error) {
		return onlyonce.Step(ctx, "charge", func(ctx context.Context) (int, error) {
			charges++
			_, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { charges++; return 2, nil })
			if err == nil {
				t.Error("a step ran while another one of its name was running")
			}
			return 1, nil
		})
	})
	if err != nil || charges != 1 {
		t.Fatalf("error %v, %d charges", err, charges)
	}
}

func TestStep_ALaterAttemptGetsEveryDigitOfANumber(t *testing.T) {
	g := onlyonce.New(newStore(), onlyonce.Config{})
	broken := errors.New("broken")
	var got any
	order := func(ctx context.Context) (int, error) {
		v, err := onlyonce.Step(ctx, "charge", func(context.Context) (map[string]any, error) {
			return map[string]any{"id": int64(math.MaxInt64)}, nil
		})
		got = v["id"]
		return 0, errors.Join(err, broken)
	}
	for range 2 {
		if _, err := onlyonce.Do(t.Context(), g, request("k"), order); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if s := fmt.Sprint(got); s != "9223372036854775807" {
			t.Fatalf("the step's ID is %s", s)
		}
	}
}

func TestStep_ACommandThatReconcileRunsAgainGetsTheStepsThatReconcileHasRead(t *testing.T) {
	store := newStore()
	charge := func(ctx context.Context) (int, error) {
		return onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 7, nil })
	}
	g := onlyonce.New(store, onlyonce.Config{Observer: onlyonce.DiscardEvents, Reconcile: func(ctx context.Context, _ onlyonce.Record) (onlyonce.Settlement, error) {
		_, err := charge(ctx)
		return onlyonce.Settlement{}, err
	}})
	if _, err := onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 0, onlyonce.Unknown(errors.New("no response")) }); err == nil {
		t.Fatal("no error")
	}
	if a, err := onlyonce.Do(t.Context(), g, request("k"), charge); err != nil || a.Value != 7 {
		t.Errorf("answer %+v, error %v", a, err)
	}
}
