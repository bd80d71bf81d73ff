package orders

import (
	"encoding/json"
	"net/http"
	"path"
	"strconv"

	"github.com/onlyonce-go/onlyonce/httponce"
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

func (a *API) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST /orders", a.owned(a.create))
	mux.Handle("GET /orders", a.owned(a.list))
	mux.Handle("GET /orders/{id}", a.owned(a.get))
	mux.Handle("/orders", a.refused(errMethod, "GET, HEAD, POST"))
	mux.Handle("/orders/{id}", a.refused(errMethod, "GET, HEAD"))
	mux.Handle("/", a.refused(errNotFound, ""))
	return mux
}

// refused answers every request with why not.
func (a *API) refused(why httponce.Problem, allow string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allow != "" {
			w.Header().Set("Allow", allow)
		}
		a.refuse(w, r, why)
	})
}

// owned lets the handler see the requests of known tenants.
func (a *API) owned(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, err := a.callers.Name(r.Header)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		ans, err := guarded(h, w, r, tenant)
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		ans.write(w)
	})
}

// guarded makes an error of a panic.
func guarded(h handler, w http.ResponseWriter, r *http.Request, tenant string) (ans answer, err error) {
	defer func() {
		if p := serving.Recovered(recover()); p != nil {
			err = p
		}
	}()
	return h(w, r, tenant)
}

// ServeHTTP answers a request. A path that is not in its shortest form is not
// found, rather than redirected. A web page of another origin can't use the
// browser of someone near the server to write.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.origins.Check(r) != nil:
		a.refuse(w, r, errCrossOrigin)
	case path.Clean(r.URL.Path) != r.URL.Path:
		a.refuse(w, r, errNotFound)
	default:
		a.mux.ServeHTTP(w, r)
	}
}

// Forbid answers 403 in the API's form, for what stands before it; why is shown to
// the client.
func (a *API) Forbid(w http.ResponseWriter, r *http.Request, why string) {
	a.refuse(w, r, refuse(http.StatusForbidden, errCrossOrigin.Code, why))
}

// refuse answers with a problem.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
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
	h := w.Header()
	private(h)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	if a.location != "" {
		h.Set("Location", a.location)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may be gone
}
