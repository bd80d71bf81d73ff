package items_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/items"
)

func ExampleNew() {
	ctx := context.Background()
	_, db, store, done := apitest.Example()
	defer done()
	api, err := items.New(ctx, db, store, items.Config{})
	if err != nil {
		panic(err)
	}
	post := func(body string) {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/items", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", "order-42")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		replayed := w.Header().Get("Idempotency-Replayed") == "true"
		fmt.Printf("%d, replayed: %v\n", w.Code, replayed)
	}
	post(`{"sku":"MUG-1","title":"Mug","status":"active"}`)
	post(`{"sku":"MUG-1","title":"Mug","status":"active"}`)
	post(`{"sku":"MUG-2","title":"Mug","status":"active"}`)
	// Output:
	// 201, replayed: false
	// 201, replayed: true
	// 409, replayed: false
}
