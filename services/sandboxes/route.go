package sandboxes

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A handler answers a call, or says why not.
type handler func(*call) (answer, error)

func (a *API) routes() map[string]serving.Methods {
	return map[string]serving.Methods{
		"/v1/sandboxes":                 {"POST": a.owned(a.create), "GET": a.owned(a.list)},
		"/v1/sandboxes/{id}":            {"GET": a.owned(a.get), "DELETE": a.owned(a.delete)},
		"/v1/sandboxes/{id}/start":      {"POST": a.owned(a.start)},
		"/v1/sandboxes/{id}/keepalive":  {"POST": a.owned(a.keepalive)},
		"/v1/sandboxes/{id}/extend_ttl": {"POST": a.owned(a.extendTTL)},
		"/v1/sandboxes/{id}/stop":       {"POST": a.owned(a.stop)},
	}
}

// owned lets the handler see the calls of known owners.
func (a *API) owned(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newCall(w, r)
		var ans answer
		var err error
		if c.owner, err = a.owner(r.Header); err == nil {
			ans, err = h(c)
		}
		a.answer(c, ans, err)
	})
}

// caller returns the owner of a request, or "".
func (a *API) caller(r *http.Request) string {
	owner, _ := a.owner(r.Header)
	return owner
}

// reject answers a request with an error.
func (a *API) reject(w http.ResponseWriter, r *http.Request, why error) {
	a.answer(newCall(w, r), answer{}, why)
}

// Forbid answers 403 in the API's form, for what stands before it; why is shown to
// the client.
func (a *API) Forbid(w http.ResponseWriter, r *http.Request, why string) {
	a.reject(w, r, &serving.Forbidden{Why: why})
}
