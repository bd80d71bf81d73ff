package httponce_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// show sends a POST and prints the response.
func show(h http.Handler, key, body string) {
	w := post(h, key, body)
	fmt.Printf("%d %q replayed=%v\n", w.Code, w.Body, w.Header().Get("Idempotency-Replayed") == "true")
}

func ExampleWrap() {
	orders := 0
	create := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", orders)
	})
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", httponce.Wrap(guard, create, httponce.Config{Tenant: httponce.SingleTenant}))

	show(mux, "a", `{"item":"tea"}`)
	show(mux, "a", `{"item":"tea"}`)
	show(mux, "b", `{"item":"tea"}`)
	// Output:
	// 201 "order 1" replayed=false
	// 201 "order 1" replayed=true
	// 201 "order 2" replayed=false
}

func ExampleWrapTx() {
	store := newShop() // a store whose transactions are orders
	guard := onlyonce.NewTx(store, onlyonce.Config{})
	create := func(w http.ResponseWriter, r *http.Request, tx order) error {
		item, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		tx["ord_1"] = string(item)
		if string(item) == "gold" {
			return onlyonce.Final(fmt.Errorf("no %s is left", item)) // the row is rolled back
		}
		w.WriteHeader(http.StatusCreated)
		_, err = fmt.Fprintf(w, "one %s", item)
		return err
	}
	h := httponce.WrapTx(guard, create, httponce.Config{
		Tenant: httponce.SingleTenant,
		Problem: func(w http.ResponseWriter, _ *http.Request, p httponce.Problem) {
			http.Error(w, p.Code, p.Status)
		},
	})

	show(h, "a", "gold")
	fmt.Printf("row %q\n", store.Row("ord_1"))
	show(h, "b", "tea")
	show(h, "b", "tea")
	fmt.Printf("row %q\n", store.Row("ord_1"))
	// Output:
	// 500 "command_failed\n" replayed=false
	// row ""
	// 201 "one tea" replayed=false
	// 201 "one tea" replayed=true
	// row "tea"
}

func ExampleInTx() {
	store := newShop()
	guard := onlyonce.NewTx(store, onlyonce.Config{})
	pay := func(key string) (receipt string) { return "rcpt_1" } // another service

	h := httponce.Wrap(guard.Guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := "none"
		if a := onlyonce.Current(r.Context()); a != nil {
			key = a.Key("pay") // the same on every attempt
		}
		receipt := pay(key)
		err := httponce.InTx(r, guard, func(tx order) error {
			tx["ord_1"] = receipt
			w.WriteHeader(http.StatusCreated)
			_, err := fmt.Fprintf(w, "paid: %s", receipt)
			return err
		})
		if err != nil {
			http.Error(w, "not saved", http.StatusInternalServerError)
		}
	}), httponce.Config{Tenant: httponce.SingleTenant})

	show(h, "a", "tea")
	fmt.Println(store.Row("ord_1"))
	// Output:
	// 201 "paid: rcpt_1" replayed=false
	// rcpt_1
}

func ExampleCanonicalJSON() {
	h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.NotFoundHandler(), httponce.Config{
		Tenant:      httponce.SingleTenant,
		Fingerprint: httponce.CanonicalJSON("/amount", "/currency"),
	})
	for _, body := range []string{`{"amount":10,"currency":"EUR"}`, `{"currency":"EUR", "amount":10.0, "sent":"again"}`, `{"amount":11,"currency":"EUR"}`} {
		fmt.Println(post(h, "k", body).Code)
	}
	// Output:
	// 404
	// 404
	// 422
}

func ExampleDontStore() {
	full := true
	h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if full {
			httponce.DontStore(r) // the next request with the key may find room
			http.Error(w, "no room", http.StatusConflict)
			return
		}
		fmt.Fprint(w, "seated")
	}), httponce.Config{Tenant: httponce.SingleTenant})
	fmt.Print(post(h, "k", "table for two").Body)
	full = false
	fmt.Print(post(h, "k", "table for two").Body)
	// Output:
	// no room
	// seated
}

func ExampleDontStoreBody() {
	h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httponce.DontStoreBody(r)
		fmt.Fprint(w, "the token, shown once")
	}), httponce.Config{Tenant: httponce.SingleTenant})
	for range 2 {
		w := post(h, "k", "new token")
		fmt.Printf("%d %q %q\n", w.Code, w.Body, w.Header().Get("Idempotency-Replay"))
	}
	// Output:
	// 200 "the token, shown once" ""
	// 200 "" "omitted"
}

func ExampleUnknown() {
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{HoldUnknown: true})
	h := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httponce.Unknown(r, errors.New("the bank did not respond in 5 s"))
		http.Error(w, "the bank did not respond", http.StatusGatewayTimeout)
	}), httponce.Config{Tenant: httponce.SingleTenant})
	for range 2 {
		fmt.Println(post(h, "k", "pay").Code)
	}
	// Output:
	// 504
	// 409
}

func ExampleProblem() {
	h := httponce.Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}), http.NotFoundHandler(), httponce.Config{
		Tenant:   httponce.SingleTenant,
		Required: true,
		Problem: func(w http.ResponseWriter, r *http.Request, p httponce.Problem) {
			w.WriteHeader(p.Status)
			fmt.Fprintf(w, "error_code=%s retryable=%v", p.Code, p.Retryable)
		},
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 400 error_code=idempotency_key_missing retryable=false
}
