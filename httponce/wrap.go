package httponce

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/funcsource"
)

// Wrap returns a handler that runs h once for each idempotency key; a repeat
// gets the first response. Requests without a key and requests of other methods
// pass through unchanged. Wrap panics on an invalid Config.
//
// h's request has the attempt in its context (see onlyonce.Current). That
// context ends when the lease is lost, but not when the client disconnects, nor at
// a deadline that a handler around Wrap has given to the request: see WithDeadline. A
// response of 500 or more, or 499, means that the command failed, and the next
// request with the key runs it again; see also DontStore and Unknown. After a panic,
// the outcome is unknown, and the panic continues. It is also unknown if a function
// inside h recovers from a panic and, before it returns, responds with 500 or more, and
// if h writes less than the Content-Length that it has set, unless the client has
// disconnected. So it is if a response of gRPC, gRPC-Web or a stream of Connect has no
// outcome: no grpc-status, or no end of its stream.
//
// If h is an http.ServeMux, it names the operation, unless Config.Operation does, and a request
// for which it has no pattern, or that it redirects, passes through. Any other router belongs
// around Wrap: after a router in h has set the request's Pattern, Wrap panics if the operation
// was chosen without a pattern. It can't see the Pattern of a copy of the request, which many
// middlewares pass on.
//
// A handler around Wrap must leave the body of a request with a key unread, or give the request
// a new one. After Request.ParseForm or FormValue, Wrap panics: it could not tell requests with
// different forms apart. It also panics if nothing is left of a body with a Content-Length. A body
// without one that was read and was not a form can't be told from an empty one.
//
// In a Wrap or a middleware of an adapter that protects the same request, Wrap leaves it to that
// one. It panics if that one has another Guard.
//
// A handler must not continue to work after it has returned.
// http.TimeoutHandler responds while its handler is still running, so it
// belongs around Wrap: the command then finishes, and the repeat gets its
// response. Wrap panics if h itself is a TimeoutHandler. If one is further
// inside, its response leaves the outcome unknown, unless a function in between
// buffers it.
func Wrap(g *onlyonce.Guard, h http.Handler, cfg Config) http.Handler {
	if g == nil || h == nil {
		panic("httponce: Wrap: the Guard or the handler is nil")
	}
	checkNotTimeout(h)
	checkNotNext(h)
	mux, _ := h.(*http.ServeMux)
	return &middleware{newProtection(g, cfg.withDefaults("Wrap")), &handlerRunner{guard: g, handler: h}, mux}
}

// timeoutHandler is the type of the handlers that http.TimeoutHandler returns.
var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(http.NotFoundHandler(), 0, ""))

// checkNotTimeout panics if h is an http.TimeoutHandler, which responds while
// its handler is still running.
func checkNotTimeout(h http.Handler) {
	if reflect.TypeOf(h) == timeoutHandler {
		panic("httponce: Wrap: the handler is an http.TimeoutHandler, which responds while its handler is still running, so that a repeat would run at the same time: " +
			"write http.TimeoutHandler(httponce.Wrap(guard, h, cfg), …) instead")
	}
}

// nextHandlers are functions of frameworks that pass their own next handler to a
// middleware of net/http: the folder of the source, the function, and what to write instead.
var nextHandlers = []struct{ folder, function, why, instead string }{
	{"labstack/echo/v4", "WrapMiddleware", "writes the errors of handlers after", "echoonce.Middleware"},
	{"labstack/echo/v5", "WrapMiddleware", "writes the errors of handlers after", "echo5once.Middleware"},
	{"gofiber/fiber/v2", "HTTPMiddleware", "runs the handlers after", "fiber2once.Middleware"},
	{"gofiber/fiber/v3", "HTTPMiddleware", "runs the handlers after", "fiberonce.Middleware"},
}

// checkNotNext panics if h is the next handler of a framework that responds after h has
// returned.
func checkNotNext(h http.Handler) {
	next, ok := h.(http.HandlerFunc)
	if !ok {
		return
	}
	file, name := funcsource.Of(next)
	for _, f := range nextHandlers {
		if strings.Contains(name, f.function) && strings.Contains(file, f.folder) {
			panic("httponce: Wrap: " + f.folder + " " + f.why + " the middleware that it gives to " + f.function + " has recorded a response: use " + f.instead + " instead; see docs/frameworks.md")
		}
	}
}
