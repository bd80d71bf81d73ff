package httponce_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// accounts is a mux with a counting handler for POST /accounts/{id}.
func accounts(runs *atomic.Int32) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}", counter(runs))
	return mux
}

func TestRouter_AServeMuxNamesTheOperationByItsPattern(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), accounts(&runs), single)
	wantResponse(t, serve(h, keyed("POST", "/accounts/7", "k", "x")), 201, "run 1 of x")
	wantResponse(t, serve(h, keyed("POST", "/accounts/7", "k", "x")), 201, "run 1 of x")
	wantProblem(t, serve(h, keyed("POST", "/accounts/8", "k", "x")), 422, "idempotency_key_reused")
}

func TestRouter_ARequestForWhichAServeMuxHasNoPatternPassesThrough(t *testing.T) {
	var runs atomic.Int32
	store := memstore.New(memstore.Config{})
	cfg := single
	cfg.Required = true
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), accounts(&runs), cfg)
	for range 2 {
		for _, path := range []string{"/none", "/accounts/7/none"} {
			if got := serve(h, keyed("POST", path, "k", "x")); got.Code != 404 || got.Header().Get("Idempotency-Replayed") != "" {
				t.Errorf("%s got %d %v", path, got.Code, got.Header())
			}
		}
		if got := serve(h, keyed("PATCH", "/accounts/7", "k", "x")); got.Code != 405 {
			t.Errorf("PATCH got %d", got.Code)
		}
	}
	if got := serve(h, httptest.NewRequest("POST", "/accounts/7", nil)); got.Code != 400 {
		t.Errorf("without a key: %d", got.Code)
	}
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
	if runs.Load() != 0 {
		t.Errorf("%d runs", runs.Load())
	}
}

// A client that follows a 307 sends the same request, with its key, to another path of the same
// operation.
func TestRouter_ARequestThatAServeMuxRedirectsRunsWhereItIsSent(t *testing.T) {
	var runs atomic.Int32
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}/", counter(&runs))
	named := single
	named.Operation = func(*http.Request) string { return "accounts" }
	for i, cfg := range []httponce.Config{single, named} {
		h := httponce.Wrap(newGuard(onlyonce.Config{}), mux, cfg)
		for range 2 {
			got := serve(h, keyed("POST", "/accounts/7", "k", "x"))
			if to := got.Header().Get("Location"); got.Code != 307 || to != "/accounts/7/" {
				t.Fatalf("got %d to %q", got.Code, to)
			}
			wantResponse(t, serve(h, keyed("POST", "/accounts/7/", "k", "x")), 201, fmt.Sprintf("run %d of x", i+1))
		}
	}
}

// A handler that only asks for HTTPS has not run the command. A client that follows its redirect
// would otherwise get the same redirect again, and be sent around in a circle for as long as it is
// kept.
func TestRouter_ARedirectToTheSamePathIsNotStored(t *testing.T) {
	for name, c := range map[string]struct {
		to     string
		stored bool
	}{
		"the same":         {"/pay/7?a=1", false},
		"the same, short":  {"?a=1", false},
		"a slash":          {"/pay/7/?a=1", true},
		"the scheme":       {"https://example.com/pay/7?a=1", false},
		"the scheme, port": {"https://EXAMPLE.com:8443/pay/7?a=1", false},
		"the port":         {"//example.com:8443/pay/7?a=1", true},
		"another host":     {"https://bank.example/pay/7?a=1", true},
		"another path":     {"/pay/8?a=1", true},
		"another query":    {"/pay/7?a=1&step=2", true},
		"an encoded slash": {"/pay%2F7?a=1", true},
		"nowhere":          {"http://[", true},
		"an empty one":     {"", true},
	} {
		for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusFound} {
			var runs atomic.Int32
			h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				w.Header().Set("Location", c.to)
				w.WriteHeader(status)
			}), single)
			for range 2 {
				if got := serve(h, keyed("POST", "/pay/7?a=1", "k", "x")); got.Code != status || got.Header().Get("Location") != c.to {
					t.Errorf("%s: got %d %v", name, got.Code, got.Header())
				}
			}
			if stored := runs.Load() == 1; stored != (c.stored || status == http.StatusFound) {
				t.Errorf("%s, status %d: %d runs", name, status, runs.Load())
			}
		}
	}
}

func TestRouter_AServeMuxInsideOfAnotherNamesTheOperation(t *testing.T) {
	var runs atomic.Int32
	store := memstore.New(memstore.Config{})
	outer := http.NewServeMux()
	outer.Handle("/accounts/", httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), accounts(&runs), single))
	wantResponse(t, serve(outer, keyed("POST", "/accounts/7", "k", "x")), 201, "run 1 of x")
	if _, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: "POST /accounts/{id}", Key: "k"}); err != nil {
		t.Error(err)
	}
}

func TestRouter_ARouterInsideAnotherHandlerPanicsUnlessTheOperationIsNamed(t *testing.T) {
	var runs atomic.Int32
	inner := func(w http.ResponseWriter, r *http.Request) { accounts(&runs).ServeHTTP(w, r) }
	store := memstore.New(memstore.Config{})
	guard := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
	h := httponce.Wrap(guard, http.HandlerFunc(inner), single)
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, `matched "POST /accounts/{id}" after`) || !strings.Contains(text, "Config.Operation") {
				t.Errorf("the panic is %s", text)
			}
		}()
		serve(h, keyed("POST", "/accounts/7", "k", "x"))
	}()
	wantProblem(t, serve(h, keyed("POST", "/accounts/7", "k", "x")), 409, "outcome_unknown")
	if got := serve(h, keyed("POST", "/none", "k", "x")); got.Code != 404 {
		t.Errorf("a path without a pattern got %d", got.Code)
	}

	cfg := single
	cfg.Operation = func(*http.Request) string { return "charge" }
	named := httponce.Wrap(guard, http.HandlerFunc(inner), cfg)
	wantResponse(t, serve(named, keyed("POST", "/accounts/7", "k", "x")), 201, "run 2 of x")

	outer := http.NewServeMux() // has a pattern, which is coarse, but lets no key run twice
	outer.Handle("/accounts/", httponce.Wrap(guard, http.HandlerFunc(inner), single))
	wantResponse(t, serve(outer, keyed("POST", "/accounts/7", "k", "x")), 201, "run 3 of x")
	wantProblem(t, serve(outer, keyed("POST", "/accounts/8", "k", "x")), 422, "idempotency_key_reused")
}

func TestRouter_ARouterInsideATransactionRollsItBack(t *testing.T) {
	s, runs := newShop(), new(atomic.Int32)
	h := wrapOrder(s, single, func(w http.ResponseWriter, r *http.Request) error {
		accounts(runs).ServeHTTP(w, r)
		return nil
	})
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "Config.Operation") {
				t.Errorf("the panic is %s", text)
			}
		}()
		serve(h, keyed("POST", "/accounts/7", "k", "x"))
	}()
	if s.Row("order") != "" {
		t.Error("the row was committed")
	}
}
