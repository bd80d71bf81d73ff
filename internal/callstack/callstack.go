// Package callstack looks at the functions that have been called on the current goroutine. It
// shows whether a handler runs on the goroutine of the framework that serves its request.
package callstack

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// Name returns the name by which Has finds a function or a method. Unlike a name that is written out,
// it is the right one in an obfuscated program, too.
func Name(function any) string {
	return strings.TrimSuffix(runtime.FuncForPC(reflect.ValueOf(function).Pointer()).Name(), "-fm")
}

// Has reports whether the current goroutine is in a function of one of the names, whether or not the
// compiler has inlined the function.
func Has(names ...string) bool {
	var callers [64]uintptr
	for skip := 2; ; skip += len(callers) {
		n := runtime.Callers(skip, callers[:])
		frames := runtime.CallersFrames(callers[:n])
		for more := n > 0; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if slices.Contains(names, frame.Function) {
				return true
			}
		}
		if n < len(callers) {
			return false
		}
	}
}
