package funcsource_test

import (
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/funcsource"
)

func newClosure() func() { return func() {} }

func TestOf_FindsTheFunctionInWhichAClosureIsWritten(t *testing.T) {
	for want, f := range map[string]any{"newClosure": newClosure, "newClosure.func1": newClosure()} {
		file, name := funcsource.Of(f)
		if !strings.HasSuffix(file, "/internal/funcsource/funcsource_test.go") || !strings.HasSuffix(name, want) {
			t.Errorf("got %s of %s, want %s", name, file, want)
		}
	}
}
