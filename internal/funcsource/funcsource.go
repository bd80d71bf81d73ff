// Package funcsource finds the source of a function. Some functions of frameworks can be recognized
// by nothing else.
package funcsource

import (
	"path/filepath"
	"reflect"
	"runtime"
)

// Of returns the file, with slashes, and the name of a function, which must not be nil. The name of
// a closure contains that of the function in which it is written.
func Of(function any) (file, name string) {
	pc := reflect.ValueOf(function).Pointer()
	fn := runtime.FuncForPC(pc)
	file, _ = fn.FileLine(pc)
	return filepath.ToSlash(file), fn.Name()
}
