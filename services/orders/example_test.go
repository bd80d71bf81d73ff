package orders_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/orders"
)

func ExampleNew() {
	ctx := context.Background()
	_, db, store, done := apitest.Example()
	defer done()
	api, err := orders.New(ctx, db, store, store.Outbox(), orders.Config{AllowAnonymous: true})
	if err != nil {
		panic(err)
	}
	order := func(quantity int) *httptest.ResponseRecorder {
		body := fmt.Sprintf(`{"items":[{"product_id":"prod-1","quantity":%d,"unit_price":"19.90"}]}`, quantity)
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Tenant-ID", "acme")
		r.Header.Set("Idempotency-Key", "first")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w
	}
	first, again, other := order(2), order(2), order(3)
	fmt.Println(first.Code, strings.Contains(first.Body.String(), `"total":"39.80"`))
	fmt.Println(again.Code, again.Body.String() == first.Body.String(), again.Header().Get("Idempotency-Replayed"))
	fmt.Println(other.Code)
	// Output:
	// 201 true
	// 201 true true
	// 422
}
