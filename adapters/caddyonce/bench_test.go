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

// A run takes a context that can be ended, a copy of the header, and hooks for the client of reverse_proxy.
func TestHandler_AllocatesAtMostTwiceForAReplayAnd24TimesForARunMoreThanWrap(t *testing.T) {
	module, wrap := benched(t)
	keys := 0
	for most, key := range map[float64]func() string{
		2: func() string { return "k" },
		24: func() string {
			keys++
			return strconv.Itoa(keys)
		},
	} {
		allocations := func(send func(key string)) float64 {
			return testing.AllocsPerRun(10, func() {
				for range 100 {
					send(key())
				}
			})
		}
		if of, than := allocations(module), allocations(wrap); of > than+100*most+10 { // pools make the number vary a little
			t.Errorf("100 requests make %v allocations, and %v with Wrap: want at most %v more for each", of, than, most)
		}
	}
}

func benchGuard() *onlyonce.Guard {
	return onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents})
}
