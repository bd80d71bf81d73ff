package response

import (
	"runtime"
	"strings"
)

// farthest is how many callers of a WriteHeader are examined. The function that recovers from a
// panic calls WriteHeader, if it does so at all, through few others.
const farthest = 64

// runs is the end of the name of the method that calls the handler.
const runs = "/httponce.(*handlerRunner).run"

// writesAfterPanic reports whether it is called by a deferred function of the handler that
// runs because of a panic, as the recovery middleware of most frameworks does.
func writesAfterPanic() bool {
	var callers [farthest]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			return true
		case !more, strings.HasSuffix(frame.Function, runs):
			return false
		}
	}
}
