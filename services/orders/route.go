package orders

import (
	"encoding/json"
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A response is the response to a request that succeeded.
type response struct {
	status   int
	location string
	body     json.RawMessage
}

// A handler handles a request of a tenant and returns the response, or an error that
// becomes one.
type handler func(w http.ResponseWriter, r *http.Request, tenant string) (response, error)

// owned returns a handler that passes the requests of known tenants to h, and rejects
// all others.
func (a *API) owned(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, err := a.callers.Name(r.Header)
		if err != nil {
			a.reject(w, r, err)
			return
		}
		resp, err := h(w, r, tenant)
		if err != nil {
			a.reject(w, r, err)
			return
		}
		resp.write(w)
	})
}

// caller returns the tenant of a request, or "".
func (a *API) caller(r *http.Request) string {
	tenant, _ := a.callers.Name(r.Header)
	return tenant
}

// reject responds to a request with the problem of an error.
func (a *API) reject(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problem(r, err)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	private(w.Header())
	p.ServeHTTP(w, r)
}

// private keeps a response out of caches, and keeps browsers from guessing its content
// type.
func private(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

func (r response) write(w http.ResponseWriter) {
	private(w.Header())
	if r.location != "" {
		w.Header().Set("Location", r.location)
	}
	serving.WriteJSON(w, r.status, r.body)
}
