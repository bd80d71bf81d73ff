// Package callstack looks at the functions that have been called on the current goroutine. It
// shows whether a handler runs on the goroutine of the framework that serves its request.
package callstack

import (
	"runtime"
	"strings"
)

// Has reports whether the current goroutine is in a function whose name ends with one of the
// suffixes, whether or not the compiler has inlined the function.
func Has(suffixes ...string) bool {
	var callers [64]uintptr
	for skip := 2; ; skip += len(callers) {
		n := runtime.Callers(skip, callers[:])
		frames := runtime.CallersFrames(callers[:n])
		for more := n > 0; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			for _, suffix := range suffixes {
				if strings.HasSuffix(frame.Function, suffix) {
					return true
				}
			}
		}
		if n < len(callers) {
			return false
		}
	}
}
