package httponce

import (
	"context"
	"errors"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// An outerState is what a framework's ResponseWriter tells of its own response,
// as gin's does.
type outerState struct {
	status  int
	written bool
}

// stateOf returns the state of w; ok is false if it tells none.
func stateOf(w http.ResponseWriter) (s outerState, ok bool) {
	teller, ok := w.(interface {
		Status() int
		Written() bool
	})
	if ok {
		s = outerState{teller.Status(), teller.Written()}
	}
	return s, ok
}

// checkBypassed panics if the handler wrote its response to the ResponseWriter
// that the layer was given, instead of the one that the handler was given: then
// there is nothing to record, and a repeat would run the handler again.
func (x *exchange) checkBypassed() {
	now, ok := stateOf(x.answer.w)
	wrote := now.written != x.outer.written || now.status != x.outer.status && now.status >= 200 // others are informational
	if ok && wrote && x.answer.kept() {
		panic("httponce: the handler wrote its response to the outer ResponseWriter, so it was not recorded: " +
			"wrap the handler itself, not a middleware that calls the next one (with gin: gin.WrapH); see docs/frameworks.md")
	}
}

// kept reports whether nothing of the answer has left.
func (a *bufferedResponse) kept() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage == buffered || a.stage == committed
}

var errLate = errors.New("httponce: a response was written after the handler had returned: it did not reach the client, and what was recorded is another; see docs/frameworks.md")

// late tells the Observer, once, that something writes a response that has ended:
// an error handler of a framework, for example, that runs after the wrapped handler.
func (x *exchange) late() {
	if x.toldLate.Swap(true) {
		return
	}
	if attempt := onlyonce.Current(&x.run); attempt != nil {
		x.guard.Observe(context.WithoutCancel(x.run.Context), onlyonce.Event{Outcome: onlyonce.OutcomeUnrecorded, Record: attempt.Record(), Err: errLate})
	}
}
