package response

import (
	"runtime"
	"strings"
)

// deepest is how many callers of a Write are examined.
const deepest = 32

// writesForTimeout reports whether the Write that calls it is that of an
// http.TimeoutHandler that has given up on its handler. It then writes with
// io.WriteString; what a handler has written that returned in time, it writes
// with Write.
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
