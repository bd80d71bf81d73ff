package httponce

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
)

// Wrap returns a handler that runs h once for each idempotency key; a repeat
// gets the first response. Requests without a key and requests of other methods
// pass through unchanged. Wrap panics on an invalid Config.
//
// h's request has the attempt in its context (see onlyonce.Current). That
// context ends when the lease is lost, but not when the client disconnects. A
// response of 500 or more means that the command failed, and the next request
// with the key runs it again; see also DontStore and Unknown. After a panic,
// the outcome is unknown, and the panic continues.
//
// A handler must not continue to work after it has returned.
// http.TimeoutHandler responds while its handler is still running, so it
// belongs around Wrap: the command then finishes, and the repeat gets its
// response. Wrap panics if h itself is a TimeoutHandler. If one is further
// inside, its response leaves the outcome unknown.
func Wrap(g *onlyonce.Guard, h http.Handler, cfg Config) http.Handler {
	if g == nil || h == nil {
		panic("httponce: Wrap: the Guard or the handler is nil")
	}
	checkNotTimeout(h)
	return &middleware{newProtection(g, cfg.withDefaults("Wrap")), &handlerRunner{guard: g, handler: h}}
}

// handlerRunner runs an http.Handler and then records its response.
type handlerRunner struct {
	guard   *onlyonce.Guard
	handler http.Handler
}

func (p *handlerRunner) serveUnkeyed(_ *protection, w http.ResponseWriter, r *http.Request) {
	p.handler.ServeHTTP(w, r)
}

func (p *handlerRunner) serveKeyed(c *call) {
	a, err := p.guard.Begin(c.r.Context(), c.request)
	switch {
	case err != nil && c.cfg.RunUnprotected && errors.Is(err, onlyonce.ErrUnavailable):
		p.runUnprotected(c, err)
	case err != nil:
		c.rejectError(err)
	case a.Replayed():
		c.replay(a)
	default:
		c.attempt = a
		p.run(c, a)
	}
}

// run runs the handler under an attempt.
func (p *handlerRunner) run(c *call, a *onlyonce.Attempt) {
	ctx, stop := a.Context(c.r.Context())
	defer stop()
	if ctx.Err() != nil { // the Observer took most of the lease
		c.rejectError(context.Cause(ctx))
		return
	}
	x := newExchange(ctx, c, false)
	x.attempt = a
	defer x.close()
	finished := false
	defer func() {
		if !finished {
			x.abandon(recover())
		}
	}()
	p.handler.ServeHTTP(x.response.Writer(), x.request())
	x.checkBypassed()
	p.finish(c, x)
	finished = true
}

// finish records the response and then sends it.
func (p *handlerRunner) finish(c *call, x *exchange) {
	stage := x.response.Close()
	if rejected := x.response.Rejected(); rejected != nil {
		_ = x.attempt.Settle(&x.run, p.guard.Failure(rejected)) // unless InTx did; observed
		c.rejectError(rejected)
		return
	}
	recorded := x.attempt
	var err error
	if stage != response.Committed {
		s, _ := x.settlement(stage)
		if err = x.attempt.Settle(&x.run, s); err != nil {
			recorded = nil
		}
	}
	switch {
	case stage == response.Streamed:
		c.sendEnd(recorded)
	case stage == response.Hijacked:
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight): // InTx is committing
		c.rejectError(err)
	default:
		c.sendResponse(recorded)
	}
}

// outcomeUnprotected is the Event.Outcome of a request that ran although the
// store could not be reached.
const outcomeUnprotected = "unprotected"

// runUnprotected runs the handler although nothing can be recorded.
func (p *handlerRunner) runUnprotected(c *call, err error) {
	p.guard.Observe(c.r.Context(), onlyonce.Event{
		Outcome: outcomeUnprotected, Record: onlyonce.Record{ID: c.request.ID},
		Fingerprint: c.request.Fingerprint, Err: err,
	})
	b := new(body)
	defer b.Close()
	c.w.Header().Set(headerProtected, "no")
	p.handler.ServeHTTP(c.w, c.give(c.r.Context(), b))
}

// timeoutHandler is the type of what http.TimeoutHandler returns.
var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(http.NotFoundHandler(), 0, ""))

// checkNotTimeout panics if h is an http.TimeoutHandler, which responds while
// its handler is still running.
func checkNotTimeout(h http.Handler) {
	if reflect.TypeOf(h) == timeoutHandler {
		panic("httponce: Wrap: the handler is an http.TimeoutHandler, which responds while its handler is still running, so that a repeat would run at the same time: " +
			"write http.TimeoutHandler(httponce.Wrap(guard, h, cfg), …) instead")
	}
}
