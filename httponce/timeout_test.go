package httponce_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestTimeoutHandler_ATimeoutHandlerRoundTheLayerLetsTheCommandEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			if err := r.Context().Err(); err != nil {
				t.Error(err)
			}
			counter(&runs).ServeHTTP(w, r)
		})
		h := http.TimeoutHandler(httponce.Wrap(newGuard(onlyonce.Config{}), slow, single), time.Second, "too slow")
		wantResponse(t, post(h, "k", "x"), 503, "too slow")
		wantProblem(t, post(h, "k", "x"), 409, "request_in_progress")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantResponse(t, post(h, "k", "x"), 201, "run 1 of x")
	})
}

func TestTimeoutHandler_ATimeoutHandlerInsideTheLayerLeavesTheOutcomeUnknown(t *testing.T) {
	wantPanic(t, "httponce: Wrap: the handler is an http.TimeoutHandler, which responds while its handler is still running, so that a repeat would run at the same time: "+
		"write http.TimeoutHandler(httponce.Wrap(guard, h, cfg), …) instead", func() {
		httponce.Wrap(newGuard(onlyonce.Config{}), http.TimeoutHandler(http.NotFoundHandler(), time.Second, ""), single)
	})
	for name, around := range map[string]func(http.Handler) http.Handler{
		"a mux": func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/{case}", h)
			return mux
		},
		"another writer": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(struct{ http.ResponseWriter }{w}, r) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Config{})
				var runs atomic.Int32
				end := make(chan struct{})
				inner := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					switch r.URL.Path {
					case "/slow":
						<-end
					case "/busy":
						w.WriteHeader(503)
						w.Write([]byte("busy"))
					}
				}), time.Second, "")
				h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{HoldUnknown: true}), around(inner), single)
				send := func(path, key string) *httptest.ResponseRecorder { return serve(h, keyed("POST", path, key, "x")) }
				wantResponse(t, send("/slow", "k"), 503, "")
				operation := map[string]string{"a mux": "POST /{case}", "another writer": "POST /slow"}[name]
				rec, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "single", Operation: operation, Key: "k"})
				if err != nil || rec.State != onlyonce.StateUnknown || !strings.Contains(rec.Error, "TimeoutHandler") {
					t.Errorf("record %+v, %v", rec, err)
				}
				wantProblem(t, send("/slow", "k"), 409, "outcome_unknown")
				if runs.Load() != 1 {
					t.Errorf("%d runs", runs.Load())
				}
				close(end)
				for range 2 { // a handler that has come to its end may be run again
					wantResponse(t, send("/busy", "b"), 503, "busy")
				}
				wantResponse(t, send("/quick", "q"), 200, "")
				if runs.Load() != 4 {
					t.Errorf("%d runs", runs.Load())
				}
			})
		})
	}
}
