package httponce_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestKeyInBody_AnUnknownCallersBodyIsNotReadForItsKey(t *testing.T) {
	cfg := byTenant
	cfg.KeyInBody = func([]byte) (string, error) { return "", nil }
	var runs atomic.Int32
	r, b := announcing("", "k", 1<<20)
	delete(r.Header, "Idempotency-Key")
	wantProblem(t, serve(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg), r), 401, "tenant_missing")
	if b.read.Load() {
		t.Error("the body was read")
	}
}

func TestKeyInBody_AKeyInTheBodyIsFoundThere(t *testing.T) {
	cfg := single
	cfg.KeyInBody = func(body []byte) (string, error) {
		if bytes.HasPrefix(body, []byte("!")) {
			return "", errors.New("the body is odd")
		}
		key, _, _ := strings.Cut(string(body), " ")
		return key, nil
	}
	var runs atomic.Int32
	var seen atomic.Value
	guard := newGuard(onlyonce.Config{})
	h := httponce.Wrap(guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(fmt.Sprint(r.Header["Idempotency-Key"], r.ContentLength))
		counter(&runs).ServeHTTP(w, r)
	}), cfg)
	send := func(key, body string) *httptest.ResponseRecorder {
		r := keyed("POST", "/orders", key, body)
		if key == "" {
			delete(r.Header, "Idempotency-Key")
		}
		return serve(h, r)
	}
	for range 2 {
		wantResponse(t, send("", "k1 x"), 201, "run 1 of k1 x")
	}
	if seen.Load() != `["k1"] 4` {
		t.Errorf("the handler sees %v", seen.Load())
	}
	wantResponse(t, send("k1", "k1 x"), 201, "run 1 of k1 x")
	wantProblem(t, send("", "k1 y"), 422, "idempotency_key_reused")
	wantProblem(t, send("k2", "k1 x"), 400, "idempotency_key_invalid")
	wantProblem(t, send("", "k/2 x"), 400, "idempotency_key_invalid")
	if w := send("", "!"); !strings.Contains(w.Body.String(), "The body is odd.") {
		t.Errorf("%s", w.Body)
	}
	wantResponse(t, send("", " x"), 201, "run 2 of  x")
	wantResponse(t, send("", " x"), 201, "run 3 of  x")
	wantResponse(t, send("k3", " x"), 201, "run 4 of  x")
	wantResponse(t, send("k3", " x"), 201, "run 4 of  x")
	cfg.Required = true
	h = httponce.Wrap(guard, counter(&runs), cfg)
	wantProblem(t, send("", " x"), 400, "idempotency_key_missing")
	wantResponse(t, send("", "k1 x"), 201, "run 1 of k1 x")
}

func TestKeyInBody_ABodyWithAContentEncodingIsNotSearchedForAKey(t *testing.T) {
	cfg := single
	cfg.KeyInBody = func(body []byte) (string, error) { return string(body), nil }
	var runs atomic.Int32
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	send := func(key, body string, codings ...string) *httptest.ResponseRecorder {
		r := keyed("POST", "/orders", key, body)
		if key == "" {
			delete(r.Header, "Idempotency-Key")
		}
		r.Header["Content-Encoding"] = codings
		return serve(h, r)
	}
	for _, codings := range [][]string{{"gzip"}, {"BR"}, {"identity, x"}, {"identity", "gzip"}} {
		for _, key := range []string{"", "k"} {
			w := send(key, "k", codings...)
			wantProblem(t, w, 415, "body_encoded")
			if accepted := w.Header().Get("Accept-Encoding"); accepted != "identity" {
				t.Errorf("%q: Accept-Encoding is %q", codings, accepted)
			}
		}
	}
	wantResponse(t, send("", "k", "Identity"), 201, "run 1 of k")
	wantResponse(t, send("other", "", "gzip"), 201, "run 2 of ")
}
