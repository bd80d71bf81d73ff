package response

import (
	"runtime"
	"strings"
)

// deepest is how many callers of a Write are examined.
const deepest = 32

// writesForTimeout reports whether it is called by the Write of an
// http.TimeoutHandler that has given up on its handler. The TimeoutHandler then
// writes with io.WriteString; it passes on the response of a handler that returned in
// time with Write.
func writesForTimeout() bool {
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
