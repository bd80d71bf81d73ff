package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestExample_ARepeatGetsTheFirstResponse(t *testing.T) {
	mux := newMux(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{}))
	for repeat := range 2 {
		r := httptest.NewRequest("POST", "/shop.v1.ShopService/Charge", strings.NewReader(`"5"`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Account", "7")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != 200 || w.Body.String() != `"charge 1 of 5"` || (w.Header().Get("Idempotency-Replayed") == "true") != (repeat > 0) {
			t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
		}
	}
}
