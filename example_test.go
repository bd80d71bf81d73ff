package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func charge(key string, body string) onlyonce.Request {
	return onlyonce.Request{
		ID:          onlyonce.ID{Tenant: "acme", Operation: "charge", Key: key},
		Fingerprint: onlyonce.Fingerprint([]byte(body)),
	}
}

func ExampleDo() {
	ctx := context.Background()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	charges := 0
	for range 3 {
		answer, err := onlyonce.Do(ctx, guard, charge("key-1", "19.90"), func(ctx context.Context) (string, error) {
			charges++
			return fmt.Sprint("receipt ", charges), nil
		})
		fmt.Println(answer.Value, answer.Replayed, err)
	}
	// Output:
	// receipt 1 false <nil>
	// receipt 1 true <nil>
	// receipt 1 true <nil>
}

func ExampleDo_mismatch() {
	ctx := context.Background()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	pay := func(context.Context) (string, error) { return "paid", nil }
	_, _ = onlyonce.Do(ctx, guard, charge("key-1", "19.90"), pay)
	_, err := onlyonce.Do(ctx, guard, charge("key-1", "99.90"), pay)
	fmt.Println(errors.Is(err, onlyonce.ErrMismatch))
	// Output: true
}

func ExampleGuard_Begin() {
	ctx := context.Background()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	for range 2 {
		attempt, err := guard.Begin(ctx, charge("key-1", "19.90"))
		if err != nil {
			fmt.Println(err)
			return
		}
		if result, done := attempt.Result(); done {
			fmt.Printf("replay: %s\n", result.Body)
			continue
		}
		run, stop := attempt.Context(ctx)
		// The command's own code goes here, under run.
		err = attempt.Settle(run, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("receipt")}})
		stop()
		fmt.Println("ran:", err)
	}
	// Output:
	// ran: <nil>
	// replay: receipt
}

func ExampleStep() {
	ctx := context.Background()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	order := func(ctx context.Context) (string, error) {
		payment, err := onlyonce.Step(ctx, "pay", func(context.Context) (string, error) {
			key := onlyonce.Current(ctx).Key("pay") // the payment API's Idempotency-Key, the same on every attempt
			fmt.Println("paying with a key of", len(key), "digits")
			return "payment 7", nil
		})
		if err != nil {
			return "", err
		}
		if onlyonce.Current(ctx).Number() == 1 {
			return "", errors.New("the warehouse does not respond")
		}
		return "shipped for " + payment, nil
	}
	_, err := onlyonce.Do(ctx, guard, charge("key-1", "19.90"), order)
	fmt.Println(err)
	answer, err := onlyonce.Do(ctx, guard, charge("key-1", "19.90"), order)
	fmt.Println(answer.Value, err)
	// Output:
	// paying with a key of 32 digits
	// the warehouse does not respond
	// shipped for payment 7 <nil>
}

func ExampleFinal() {
	ctx := context.Background()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	rejected := func(context.Context) (string, error) {
		fmt.Println("asking the bank")
		return "", onlyonce.Final(errors.New("card rejected"))
	}
	for range 2 {
		_, err := onlyonce.Do(ctx, guard, charge("key-1", "19.90"), rejected)
		fmt.Println(err)
	}
	// Output:
	// asking the bank
	// card rejected
	// onlyonce: the command failed, and its failure is kept: card rejected
}

func ExampleUnknown() {
	ctx := context.Background()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{
		Reconcile: func(ctx context.Context, r onlyonce.Record) (onlyonce.Settlement, error) {
			fmt.Println("asking the bank what became of attempt", r.Attempt)
			return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(`"paid"`)}}, nil
		},
	})
	pay := func(context.Context) (string, error) {
		return "", onlyonce.Unknown(errors.New("the connection broke after the request was sent"))
	}
	_, err := onlyonce.Do(ctx, guard, charge("key-1", "19.90"), pay)
	fmt.Println(err)
	answer, err := onlyonce.Do(ctx, guard, charge("key-1", "19.90"), pay)
	fmt.Println(answer.Value, err)
	// Output:
	// the connection broke after the request was sent
	// asking the bank what became of attempt 1
	// paid <nil>
}

func ExampleGuard_Purge() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Keep: time.Hour})
	n, err := guard.Purge(context.Background())
	fmt.Println(n, err)
	// Output: 0 <nil>
}
