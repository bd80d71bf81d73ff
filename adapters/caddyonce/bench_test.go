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

// BenchmarkHandler compares the module with httponce.Wrap in its place, in the same server.
func BenchmarkHandler(b *testing.B) {
	server := new(caddyhttp.Server)
	respond := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"charge":1}`)
	}
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		respond(w, r)
		return nil
	})
	for _, c := range []struct {
		name string
		key  func(i int) string
	}{
		{"run", strconv.Itoa},
		{"replay", func(int) string { return "k" }},
	} {
		module := func() caddyhttp.HandlerFunc {
			h := &Handler{SingleTenant: true, Operation: "charge", store: &pooled{}}
			h.once = httponce.Wrap(benchGuard(), http.HandlerFunc(h.run), h.config())
			return func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, next) }
		}
		wrap := func() caddyhttp.HandlerFunc {
			cfg := (&Handler{SingleTenant: true, store: &pooled{}}).config()
			cfg.Operation = func(*http.Request) string { return "charge" }
			once := httponce.Wrap(benchGuard(), http.HandlerFunc(respond), cfg)
			return func(w http.ResponseWriter, r *http.Request) error {
				once.ServeHTTP(w, r)
				return nil
			}
		}
		for name, newHandler := range map[string]func() caddyhttp.HandlerFunc{"/Wrap": wrap, "/Handler": module} {
			b.Run(c.name+name, func(b *testing.B) {
				handle := newHandler()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					w := httptest.NewRecorder()
					r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("a"))
					r.Header.Set("Idempotency-Key", c.key(i))
					if err := handle(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)); err != nil || w.Code != http.StatusCreated {
						b.Fatal(w.Code, err)
					}
				}
			})
		}
	}
}

func benchGuard() *onlyonce.Guard {
	return onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
}
