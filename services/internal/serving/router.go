package serving

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
)

// These are the errors with which a Router calls the API's reject function.
var (
	ErrNotFound         = errors.New("there is no such resource")
	ErrMethodNotAllowed = errors.New("the resource does not support that method")
	ErrTooManyRequests  = errors.New("the caller has too many requests in progress")
)

// TooManyRequests is the text of ErrTooManyRequests for clients.
var TooManyRequests = fmt.Sprintf("You already have %d requests in progress, the maximum for one caller. Nothing was done.", maxInFlight)

// A Forbidden error is the reason why a request is not allowed at all. It is shown to
// the client.
type Forbidden struct{ Why string }

func (f *Forbidden) Error() string { return f.Why }

var errCrossOrigin = &Forbidden{"A page of another origin must not write"}

// Methods are the handlers of one path, by method. The handler of GET serves HEAD, too.
type Methods map[string]http.Handler

// A Router serves an API: it passes every request to the handler of its path and
// method. The API gives it a function that writes rejections in the API's form. An API
// embeds its Router, and with it ServeHTTP and Forbid.
type Router struct {
	mux     *http.ServeMux
	origins http.CrossOriginProtection
	name    func(*http.Request) string // of the caller; "": unknown
	callers callers
	reject  func(w http.ResponseWriter, r *http.Request, why error)
}

// NewRouter returns a router for paths in the syntax of http.ServeMux. It serves at
// most 512 requests of a caller at a time. name returns the caller's name, or "" if it
// is unknown; requests from one address without a name, or without Authorization,
// count as one caller's. The router calls reject with ErrNotFound, with
// ErrMethodNotAllowed (Allow is set), with ErrTooManyRequests, with a *Forbidden for a
// write by a web page of another origin, which could otherwise use the browser of
// someone near the server, and with the error that recovered returns for a panic.
func NewRouter(name func(*http.Request) string, reject func(w http.ResponseWriter, r *http.Request, why error), routes map[string]Methods) *Router {
	rt := &Router{mux: http.NewServeMux(), name: name, reject: reject}
	rt.mux.Handle("/", rt.rejected(ErrNotFound, ""))
	for path, methods := range routes {
		allowed := make([]string, 0, len(methods)+1)
		for method, h := range methods {
			rt.mux.Handle(method+" "+path, h)
			allowed = append(allowed, method)
			if method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
		slices.Sort(allowed)
		rt.mux.Handle(path, rt.rejected(ErrMethodNotAllowed, strings.Join(allowed, ", ")))
	}
	return rt
}

// rejected rejects every request.
func (rt *Router) rejected(why error, allow string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allow != "" {
			w.Header().Set("Allow", allow)
		}
		rt.reject(w, r, why)
	})
}

// Forbid rejects a request with 403 in the API's form, on behalf of a handler in front
// of the API. The client gets the reason why.
func (rt *Router) Forbid(w http.ResponseWriter, r *http.Request, why string) {
	rt.reject(w, r, &Forbidden{Why: why})
}

// ServeHTTP serves a request. A path that is not in its shortest form is not found,
// rather than redirected.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if err := recovered(recover()); err != nil {
			rt.reject(w, r, err)
		}
	}()
	switch {
	case rt.origins.Check(r) != nil:
		rt.reject(w, r, errCrossOrigin)
	case path.Clean(r.URL.Path) != r.URL.Path:
		rt.reject(w, r, ErrNotFound)
	default:
		rt.serve(w, r)
	}
}

// serve serves a request unless its caller has too many in progress.
func (rt *Router) serve(w http.ResponseWriter, r *http.Request) {
	who := callerOf(r, rt.name)
	if !rt.callers.enter(who) {
		rt.reject(w, r, ErrTooManyRequests)
		return
	}
	defer rt.callers.leave(who)
	rt.mux.ServeHTTP(w, r)
}

// recovered turns the result of recover into an error with the stack of the panic, or
// nil if there was no panic. It panics again with http.ErrAbortHandler.
func recovered(p any) error {
	switch p {
	case nil:
		return nil
	case http.ErrAbortHandler:
		panic(p)
	}
	return fmt.Errorf("panic: %v\n%s", p, debug.Stack())
}
