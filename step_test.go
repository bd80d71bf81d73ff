package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce"
)

func TestAFinishedStepIsNotRunAgainByALaterAttempt(t *testing.T) {
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
		t.Fatalf("answer %+v, error %v, %d charges, %d mails", a, err, charges, mails)
	}
}

func TestAReleaseKeepsStepsThatRan(t *testing.T) {
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

func TestAStepThatIsNotStoredMakesTheOutcomeUnknown(t *testing.T) {
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

func TestAStepIsStoredThoughTheStoreStumbles(t *testing.T) {
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

func TestAStepOutsideAnAttemptIsAnError(t *testing.T) {
	ran := false
	_, err := onlyonce.Step(t.Context(), "charge", func(context.Context) (int, error) { ran = true; return 1, nil })
	if err == nil || ran {
		t.Fatalf("ran %v, error %v", ran, err)
	}
}

func TestADownstreamKeyIsTheSameOnEveryAttempt(t *testing.T) {
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
