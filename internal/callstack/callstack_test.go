package callstack_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/internal/callstack"
)

//go:noinline
func serve(depth int, f func()) {
	if depth > 0 {
		serve(depth-1, f)
		return
	}
	f()
}

//go:noinline
func handle(depth int, f func()) {
	if depth > 0 {
		handle(depth-1, f)
		return
	}
	f()
}

func TestHas_FindsAFunctionHoweverDeepTheStackIs(t *testing.T) {
	for _, depth := range []int{0, 58, 59, 60, 61, 62, 63, 64, 65, 66, 500} {
		serve(0, func() {
			handle(depth, func() {
				if !callstack.Has("none", callstack.Name(serve)) {
					t.Errorf("under %d calls, it is not found", depth)
				}
			})
		})
	}
}

func TestHas_SeesTheCurrentGoroutineOnly(t *testing.T) {
	name, found := callstack.Name(serve), make(chan bool)
	serve(0, func() {
		go func() { found <- callstack.Has(name) }()
		if <-found {
			t.Error("it finds a function of another goroutine")
		}
	})
	if callstack.Has(name) {
		t.Error("it finds a function that has returned")
	}
}

type app struct{}

// serve and route are inlined where serve is called directly, as methods may be that a profile
// shows to be called often.
func (a app) serve(f func()) { a.route(f) }

func (app) route(f func()) { f() }

func TestHas_FindsAFunctionThatIsInlined(t *testing.T) {
	handle(0, func() {
		app{}.serve(func() {
			for _, method := range []any{app.serve, app{}.serve} {
				if name := callstack.Name(method); !callstack.Has(name) {
					t.Errorf("%s is not found", name)
				}
			}
		})
	})
}

func BenchmarkHas(b *testing.B) {
	name := callstack.Name(serve)
	serve(0, func() {
		handle(30, func() {
			for b.Loop() {
				callstack.Has(name)
			}
		})
	})
}
