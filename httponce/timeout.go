package httponce

import (
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// timeoutHandler is the type of what http.TimeoutHandler returns.
var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(http.NotFoundHandler(), 0, ""))

// checkNotTimeout panics if h is an http.TimeoutHandler, which answers while its
// handler still runs.
func checkNotTimeout(h http.Handler) {
	if reflect.TypeOf(h) == timeoutHandler {
		panic("httponce: Wrap: the handler is an http.TimeoutHandler, which answers while its handler still runs, so that a repeat would run beside it: " +
			"write http.TimeoutHandler(httponce.Wrap(guard, h, cfg), …) instead")
	}
}

// deepest is how many callers of a Write are looked at.
const deepest = 32

// givenUp reports whether the Write that calls it is that of an http.TimeoutHandler
// which has given up on its handler: it then writes with io.WriteString, and with
// Write what a handler has written that came to its end.
func givenUp() bool {
	var callers [deepest]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	inner := ""
	for {
		frame, more := frames.Next()
		if inner == "io.WriteString" && strings.HasSuffix(frame.Function, "net/http.(*timeoutHandler).ServeHTTP") {
			return true
		}
		if inner = frame.Function; !more {
			return false
		}
	}
}
