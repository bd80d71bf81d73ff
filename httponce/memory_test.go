package httponce

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// In all tests of this package, memory that another request may use is overwritten, so
// that a test fails if anything still reads it, and the race detector reports it.
func init() {
	reused = func(memory []byte) {
		for i := range memory {
			memory[i] = 0xDB
		}
	}
}

// send sends a keyed request.
func send(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/orders", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestMemory_ABodyThatAHandlerKeepsEndsWithItsHandler(t *testing.T) {
	const size = 8 << 10
	for name, serve := range map[string]http.HandlerFunc{
		"returns":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "done") },
		"panics":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"streams":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a"); w.(http.Flusher).Flush() },
		"long":      func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 100<<10)) },
		"not known": func(_ http.ResponseWriter, r *http.Request) { Unknown(r, errors.New("no response")) },
		"copies it": func(w http.ResponseWriter, r *http.Request) { io.Copy(w, io.LimitReader(r.Body, size/2)) },
		"times out": func(w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), time.Millisecond, "").ServeHTTP(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var reading sync.WaitGroup
			defer reading.Wait()
			var kept io.Reader
			h := Wrap(onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{Observer: onlyonce.DiscardEvents}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				kept = r.Body
				reading.Go(func() {
					for one := make([]byte, 1); ; {
						n, err := r.Body.Read(one)
						if n > 0 && one[0] != 'x' {
							t.Errorf("a goroutine of the handler reads %q", one)
						}
						if err != nil {
							return
						}
					}
				})
				serve(w, r)
			}), Config{Tenant: SingleTenant})
			func() {
				defer func() { _ = recover() }()
				send(h, "k", strings.Repeat("x", size))
			}()
			if n, err := kept.Read(make([]byte, 1)); n > 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Errorf("after the response, it reads %d bytes, %v", n, err)
			}
		})
	}
}

// An observer keeps the events that it gets.
type observer struct {
	kept []onlyonce.Event
	then [][]byte // copies of the fingerprints and of the bodies
}

func (o *observer) observe(_ context.Context, e onlyonce.Event) {
	o.kept = append(o.kept, e)
	o.then = append(o.then, slices.Concat(e.Fingerprint, e.Record.Fingerprint, e.Record.Result.Body))
}

// A downStore can't be reached.
type downStore struct{ onlyonce.Store }

func (downStore) Claim(context.Context, onlyonce.Claim) (onlyonce.Record, error) {
	return onlyonce.Record{}, errors.New("down")
}

func TestMemory_WhatAnObserverOrAnAttemptKeepsStaysAsItWas(t *testing.T) {
	up := memstore.New(memstore.Config{})
	var o observer
	var attempts []*onlyonce.Attempt
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := onlyonce.Current(r.Context()); a != nil {
			attempts = append(attempts, a)
		}
		io.Copy(w, r.Body)
	})
	for _, store := range []onlyonce.Store{up, downStore{up}} {
		for _, fingerprint := range []func(*http.Request, []byte) []byte{nil, func(_ *http.Request, body []byte) []byte { return body }} {
			cfg := Config{Tenant: SingleTenant, RunUnprotected: true, Fingerprint: fingerprint, Operation: func(*http.Request) string { return map[bool]string{true: "a", false: "b"}[fingerprint == nil] }}
			h := Wrap(onlyonce.New(store, onlyonce.Config{Observer: o.observe}), handler, cfg)
			for _, key := range []string{"1", "2", "1"} {
				body := strings.Repeat(key, 100)
				if w := send(h, key, body); w.Code != 200 || w.Body.String() != body {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		}
	}
	if len(o.kept) < 12 || len(attempts) != 4 {
		t.Fatalf("%d events, %d attempts", len(o.kept), len(attempts))
	}
	for i, e := range o.kept {
		if now := slices.Concat(e.Fingerprint, e.Record.Fingerprint, e.Record.Result.Body); !bytes.Equal(now, o.then[i]) {
			t.Errorf("event %d, %s: %q has become %q", i, e.Outcome, o.then[i], now)
		}
	}
	for i, a := range attempts {
		if rec := a.Record(); string(rec.Result.Body) != strings.Repeat([]string{"1", "2"}[i%2], 100) {
			t.Errorf("attempt %d: the body has become %q", i, rec.Result.Body)
		}
	}
}
