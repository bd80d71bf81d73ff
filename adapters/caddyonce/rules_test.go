package caddyonce

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
)

const chargesRoute = "/accounts/:id/charges"

// perform does what the suite asks for.
func perform(app adaptertest.App, w http.ResponseWriter, r *http.Request) error {
	var charge struct{ Note string }
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&charge); err != nil {
			return caddyhttp.Error(http.StatusBadRequest, err)
		}
	}
	respond := func(status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	act := app.Handle(adaptertest.Call{Note: charge.Note, Context: r.Context(), Request: r, Respond: respond})
	switch {
	case act.Panic != nil:
		panic(act.Panic)
	case act.Err != nil:
		return caddyhttp.Error(http.StatusInternalServerError, act.Err)
	case act.Chunks != nil:
		for _, chunk := range act.Chunks {
			_, _ = io.WriteString(w, chunk)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
	default:
		respond(act.Status, act.Body)
	}
	return nil
}

// recovering is a handler that recovers from the panics of the next one.
func recovering(next caddyhttp.Handler) caddyhttp.Handler {
	return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		return next.ServeHTTP(w, r)
	})
}

func newApp(_ *testing.T, app adaptertest.App) http.Handler {
	h := &Handler{Tenant: "{http.vars.account}", Operation: "{http.request.method} " + chargesRoute, store: &pooled{}}
	cfg := app.Config
	if cfg.Tenant = h.tenant; cfg.Operation == nil {
		cfg.Operation = h.operation
	}
	h.once = httponce.Wrap(app.Guard, http.HandlerFunc(h.run), cfg)

	var next caddyhttp.Handler = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error { return perform(app, w, r) })
	if app.Recovery == adaptertest.Inside {
		next = recovering(next)
	}
	var chain caddyhttp.Handler = caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		caddyhttp.SetVar(r.Context(), "account", r.Header.Get("X-Account"))
		w.Header().Set("X-Outer", app.Outer())
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("X-Inner", app.Inner())
			return next.ServeHTTP(w, r)
		}))
	})
	if app.Recovery == adaptertest.Outside {
		chain = recovering(chain)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
		if err := chain.ServeHTTP(w, r); err != nil {
			w.WriteHeader(statusAfter(new(inner), err)) // as Caddy's server does
		}
	})
}

func TestHandler_KeepsTheRulesOfAdapters(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{New: newApp, Route: chargesRoute, NoStream: true, NoTx: true})
}
