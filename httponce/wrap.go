package httponce

import (
	"net/http"
	"reflect"

	"github.com/onlyonce-go/onlyonce"
)

// Wrap returns a handler that runs h once for each idempotency key; a repeat
// gets the first response. Requests without a key and requests of other methods
// pass through unchanged. Wrap panics on an invalid Config.
//
// h's request has the attempt in its context (see onlyonce.Current). That
// context ends when the lease is lost, but not when the client disconnects. A
// response of 500 or more means that the command failed, and the next request
// with the key runs it again; see also DontStore and Unknown. After a panic,
// the outcome is unknown, and the panic continues. It is also unknown if h writes
// less than the Content-Length that it has set, unless the client has disconnected.
//
// A handler must not continue to work after it has returned.
// http.TimeoutHandler responds while its handler is still running, so it
// belongs around Wrap: the command then finishes, and the repeat gets its
// response. Wrap panics if h itself is a TimeoutHandler. If one is further
// inside, its response leaves the outcome unknown.
func Wrap(g *onlyonce.Guard, h http.Handler, cfg Config) http.Handler {
	if g == nil || h == nil {
		panic("httponce: Wrap: the Guard or the handler is nil")
	}
	checkNotTimeout(h)
	return &middleware{newProtection(g, cfg.withDefaults("Wrap")), &handlerRunner{guard: g, handler: h}}
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
