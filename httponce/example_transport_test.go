package httponce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// newBank is a server that counts the payments it made.
func newBank(payments *int) *httptest.Server {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*payments++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", *payments)
	})
	return httptest.NewServer(httponce.Wrap(guard, pay, httponce.Config{Tenant: httponce.SingleTenant, Required: true}))
}

// losing is a network that loses the first responses.
type losing struct{ answers int }

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := http.DefaultTransport.RoundTrip(r)
	if l.answers--; err == nil && l.answers >= 0 {
		_ = w.Body.Close()
		return nil, errors.New("the connection was lost")
	}
	return w, err
}

func ExampleTransport() {
	payments := 0
	bank := newBank(&payments)
	defer bank.Close()

	client := &http.Client{Transport: &httponce.Transport{
		Base:    &losing{answers: 2},
		Backoff: time.Millisecond,
	}}
	w, err := client.Post(bank.URL, "application/json", strings.NewReader(`{"amount":10}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Body.Close()
	receipt, err := io.ReadAll(w.Body)
	fmt.Printf("%s, of %d, replayed=%s %v\n", receipt, payments, w.Header.Get("Idempotency-Replayed"), err)
	// Output: payment 1, of 1, replayed=true <nil>
}

// A process that died after it sent a payment, and before it had the response,
// finds at its next start its request and its key.
func ExampleTransport_persist() {
	payments := 0
	bank := newBank(&payments)
	defer bank.Close()
	file := filepath.Join(os.TempDir(), fmt.Sprintf("intent-%d.json", os.Getpid()))
	defer os.Remove(file)

	type intent struct{ Key, Body string }
	write := func(_ context.Context, r *http.Request, key string) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		text, err := json.Marshal(intent{key, string(body)})
		if err != nil {
			return err
		}
		return os.WriteFile(file, text, 0o600) // a real one also syncs it, or inserts a row
	}

	// The first process dies before it gets a response.
	client := &http.Client{Transport: &httponce.Transport{Base: &losing{answers: 1}, MaxAttempts: 1, Persist: write}}
	_, err := client.Post(bank.URL, "application/json", strings.NewReader(`{"amount":10}`))
	fmt.Println("answered:", err == nil)

	// The second one looks for the unfinished request, and repeats it with the same key.
	text, err := os.ReadFile(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	var left intent
	if err := json.Unmarshal(text, &left); err != nil {
		fmt.Println(err)
		return
	}
	r, err := http.NewRequest(http.MethodPost, bank.URL, strings.NewReader(left.Body))
	if err != nil {
		fmt.Println(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", left.Key)
	w, err := (&http.Client{Transport: &httponce.Transport{Persist: write}}).Do(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Body.Close()
	receipt, err := io.ReadAll(w.Body)
	fmt.Printf("%s, of %d %v\n", receipt, payments, err)
	// Output:
	// answered: false
	// payment 1, of 1 <nil>
}

func ExampleNoResponseError() {
	payments := 0
	bank := newBank(&payments)
	defer bank.Close()

	client := &http.Client{Transport: &httponce.Transport{Base: &losing{answers: 2}, MaxAttempts: 2, Backoff: time.Millisecond}}
	_, err := client.Post(bank.URL, "application/json", strings.NewReader(`{"amount":10}`))
	var none *httponce.NoResponseError
	if errors.As(err, &none) {
		fmt.Printf("%d attempts, %v; ask again with the same key: %v\n", none.Attempts, none.Err, none.Key != "")
	}
	// Output: 2 attempts, the connection was lost; ask again with the same key: true
}
