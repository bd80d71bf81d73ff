package httponce_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// recovered calls h, and responds with a status if it panics.
func recovered(status int, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "recovered", status)
			}
		}()
		h(w, r)
	}
}

func TestWrap_APanicThatIsRecoveredInsideLeavesTheOutcomeUnknown(t *testing.T) {
	nested := func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		panic("no response is written meanwhile")
	}
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		status int
		state  onlyonce.State
	}{
		"half done":                {recovered(500, func(http.ResponseWriter, *http.Request) { panic("half done") }), 500, onlyonce.StateUnknown},
		"a nil pointer":            {recovered(502, func(http.ResponseWriter, *http.Request) { var p *int; *p = 1 }), 502, onlyonce.StateUnknown},
		"after a part of the body": {recovered(500, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a part "); panic("half done") }), 200, onlyonce.StateUnknown},
		"an error of the client":   {recovered(400, func(http.ResponseWriter, *http.Request) { panic("malformed") }), 400, onlyonce.StateCompleted},
		"an error after a panic":   {func(w http.ResponseWriter, r *http.Request) { nested(w, r); w.WriteHeader(500) }, 500, onlyonce.StateFailed},
		"no panic":                 {recovered(500, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }), 500, onlyonce.StateFailed},
		"discarded": {recovered(500, func(w http.ResponseWriter, r *http.Request) {
			recovered(500, func(http.ResponseWriter, *http.Request) { panic("half done") })(w, r)
			httponce.Discard(r)
			w.WriteHeader(201)
		}), 201, onlyonce.StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			got := post(httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), c.h, single), "k", "x")
			rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
			if got.Code != c.status || err != nil || rec.State != c.state {
				t.Errorf("status %d, record %+v, %v", got.Code, rec, err)
			}
		})
	}
}

func TestWrapTx_APanicThatIsRecoveredInsideFailsBecauseItsRowsAreRolledBack(t *testing.T) {
	s := newShop()
	h := wrapOrder(s, single, func(w http.ResponseWriter, r *http.Request) error {
		recovered(500, func(http.ResponseWriter, *http.Request) { panic("half done") })(w, r)
		return nil
	})
	wantResponse(t, post(h, "k", "x"), 500, "recovered\n")
	rec, err := s.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /orders", Key: "k"})
	if err != nil || rec.State != onlyonce.StateFailed || s.Row("order") != "" {
		t.Errorf("record %+v, %v", rec, err)
	}
}
