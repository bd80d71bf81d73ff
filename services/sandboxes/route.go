package sandboxes

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A handler handles a call and returns the response, or an error that becomes one.
type handler func(*call) (response, error)

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

// owned returns a handler that passes the calls of known owners to h, and rejects all
// others.
func (a *API) owned(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newCall(w, r)
		var resp response
		var err error
		if c.owner, err = a.owner(r.Header); err == nil {
			resp, err = h(c)
		}
		a.respond(c, resp, err)
	})
}

// caller returns the owner of a request, or "".
func (a *API) caller(r *http.Request) string {
	owner, _ := a.owner(r.Header)
	return owner
}

// reject responds to a request with an error.
func (a *API) reject(w http.ResponseWriter, r *http.Request, why error) {
	a.respond(newCall(w, r), response{}, why)
}
