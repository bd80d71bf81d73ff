package sandboxes

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A handler answers a call, or says why not.
type handler func(*call) (answer, error)

func (a *API) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/", a.public(notFound))
	for path, methods := range map[string]map[string]handler{
		"/v1/sandboxes":                 {"POST": a.create, "GET": a.list},
		"/v1/sandboxes/{id}":            {"GET": a.get, "DELETE": a.delete},
		"/v1/sandboxes/{id}/start":      {"POST": a.start},
		"/v1/sandboxes/{id}/keepalive":  {"POST": a.keepalive},
		"/v1/sandboxes/{id}/extend_ttl": {"POST": a.extendTTL},
		"/v1/sandboxes/{id}/stop":       {"POST": a.stop},
	} {
		var allowed []string
		for method, h := range methods {
			mux.Handle(method+" "+path, a.public(a.owned(h)))
			allowed = append(allowed, method)
			if method == "GET" {
				allowed = append(allowed, "HEAD")
			}
		}
		slices.Sort(allowed)
		mux.Handle(path, a.public(otherMethod(strings.Join(allowed, ", "))))
	}
	return mux
}

func notFound(*call) (answer, error) { return answer{}, errNotFound() }

func crossOrigin(*call) (answer, error) { return answer{}, errForbidden() }

func otherMethod(allowed string) handler {
	return func(c *call) (answer, error) {
		c.w.Header().Set("Allow", allowed)
		return answer{}, errMethod()
	}
}

// owned lets the handler see calls of known owners.
func (a *API) owned(h handler) handler {
	return func(c *call) (answer, error) {
		var err error
		if c.owner, err = a.owner(c.Header); err != nil {
			return answer{}, err
		}
		return h(c)
	}
}

// public makes an http.Handler of a handler. A panic is answered like any other
// error.
func (a *API) public(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newCall(w, r)
		ans, err := guarded(h, c)
		a.answer(c, ans, err)
	})
}

func guarded(h handler, c *call) (ans answer, err error) {
	defer func() {
		if p := serving.Recovered(recover()); p != nil {
			err = p
		}
	}()
	return h(c)
}

// ServeHTTP answers a request. A path that is not in its shortest form is not
// found, rather than redirected. A web page of another origin can't use the
// browser of someone near the server to write.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.origins.Check(r) != nil:
		a.public(crossOrigin).ServeHTTP(w, r)
	case path.Clean(r.URL.Path) != r.URL.Path:
		a.public(notFound).ServeHTTP(w, r)
	default:
		a.mux.ServeHTTP(w, r)
	}
}

// Forbid answers 403 in the API's form, for what stands before it; why is shown to
// the client.
func (a *API) Forbid(w http.ResponseWriter, r *http.Request, why string) {
	f := errForbidden()
	f.message = why
	a.answer(newCall(w, r), answer{}, f)
}
