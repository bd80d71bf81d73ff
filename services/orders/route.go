package orders

import (
	"encoding/json"
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// An answer is the response to a request.
type answer struct {
	status   int
	location string
	body     json.RawMessage
}

// A handler answers a request of a tenant, or says why not.
type handler func(w http.ResponseWriter, r *http.Request, tenant string) (answer, error)

// owned lets the handler see the requests of known tenants.
func (a *API) owned(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, err := a.callers.Name(r.Header)
		if err != nil {
			a.reject(w, r, err)
			return
		}
		ans, err := h(w, r, tenant)
		if err != nil {
			a.reject(w, r, err)
			return
		}
		ans.write(w)
	})
}

// caller returns the tenant of a request, or "".
func (a *API) caller(r *http.Request) string {
	tenant, _ := a.callers.Name(r.Header)
	return tenant
}

// Forbid answers 403 in the API's form, for what stands before it; why is shown to
// the client.
func (a *API) Forbid(w http.ResponseWriter, r *http.Request, why string) {
	a.reject(w, r, &serving.Forbidden{Why: why})
}

// reject answers with a problem.
func (a *API) reject(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problem(r, err)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	private(w.Header())
	p.ServeHTTP(w, r)
}

// private keeps an answer out of caches, and a browser from guessing what it is.
func private(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

func (a answer) write(w http.ResponseWriter) {
	private(w.Header())
	if a.location != "" {
		w.Header().Set("Location", a.location)
	}
	serving.WriteJSON(w, a.status, a.body)
}
