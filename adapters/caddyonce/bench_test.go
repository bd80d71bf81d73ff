package caddyonce

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// benched returns the module, and httponce.Wrap in its place with the same settings, around a handler that
// responds. Each sends a request with a key through the same server.
func benched(tb testing.TB) (module, wrap func(key string)) {
	server := new(caddyhttp.Server)
	respond := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"charge":1}`)
	}
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		respond(w, r)
		return nil
	})
	sender := func(handle caddyhttp.HandlerFunc) func(key string) {
		return func(key string) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("a"))
			r.Header.Set("Idempotency-Key", key)
			if err := handle(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)); err != nil || w.Code != http.StatusCreated {
				tb.Fatal(w.Code, err)
			}
		}
	}
	h := &Handler{SingleTenant: true, Operation: "charge", store: &pooled{}}
	h.once = httponce.Wrap(benchGuard(), http.HandlerFunc(h.run), h.config())
	cfg := (&Handler{SingleTenant: true, store: &pooled{}}).config()
	cfg.Operation = func(*http.Request) string { return "charge" }
	once := httponce.Wrap(benchGuard(), http.HandlerFunc(respond), cfg)
	return sender(func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, next) }),
		sender(func(w http.ResponseWriter, r *http.Request) error {
			once.ServeHTTP(w, r)
			return nil
		})
}

// BenchmarkHandler compares the module with httponce.Wrap in its place, in the same server.
func BenchmarkHandler(b *testing.B) {
	for name, key := range map[string]func(i int) string{"run": strconv.Itoa, "replay": func(int) string { return "k" }} {
		module, wrap := benched(b)
		for of, send := range map[string]func(key string){"/Wrap": wrap, "/Handler": module} {
			b.Run(name+of, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					send(key(i))
				}
			})
		}
	}
}

func benchGuard() *onlyonce.Guard {
	return onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
}
