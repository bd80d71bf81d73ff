package httponce

import (
	"context"
	"errors"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
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
	return newMiddleware(g, cfg.withDefaults("Wrap"), &handlerRunner{guard: g, handler: h})
}

// handlerRunner runs an http.Handler and then records its response.
type handlerRunner struct {
	guard   *onlyonce.Guard
	handler http.Handler
}

func (p *handlerRunner) serveUnkeyed(_ *middleware, w http.ResponseWriter, r *http.Request) {
	p.handler.ServeHTTP(w, r)
}

func (p *handlerRunner) serveKeyed(l *middleware, c *call) {
	a, err := p.guard.Begin(c.r.Context(), c.request)
	switch {
	case err != nil && l.cfg.RunUnprotected && errors.Is(err, onlyonce.ErrUnavailable):
		p.unprotected(c, err)
	case err != nil:
		l.refuseCall(c, err)
	case a.Replayed():
		l.replay(c, a)
	default:
		c.attempt = a
		p.run(l, c, a)
	}
}

// run runs the handler under an attempt.
func (p *handlerRunner) run(l *middleware, c *call, a *onlyonce.Attempt) {
	ctx, stop := a.Context(c.r.Context())
	defer stop()
	if ctx.Err() != nil { // the Observer took most of the lease
		l.refuseCall(c, context.Cause(ctx))
		return
	}
	x := newExchange(l, c, ctx)
	x.attempt = a
	defer x.close(c)
	finished := false
	defer func() {
		if !finished {
			x.abandon(recover())
		}
	}()
	p.handler.ServeHTTP(&x.answer, x.request(c))
	x.checkBypassed()
	l.finish(c, x)
	finished = true
}

// finish records the response and then sends it.
func (l *middleware) finish(c *call, x *exchange) {
	stage := x.answer.end()
	if refused := x.answer.refused; refused != nil {
		_ = x.attempt.Settle(&x.run, l.guard.Failure(refused)) // unless InTx did; observed
		l.refuseCall(c, refused)
		return
	}
	var err error
	if stage != committed {
		s, _ := x.settlement(stage)
		err = x.attempt.Settle(&x.run, s)
	}
	switch {
	case stage == streamed:
		if err == nil {
			l.account(c, x.attempt.Record())
		}
		l.free(c)
		x.answer.writeTail()
	case stage == hijacked:
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight): // InTx is committing
		l.refuseCall(c, err)
	default:
		l.sendResponse(c, err == nil)
	}
}

// outcomeUnprotected is the Event.Outcome of a request that ran although the
// store could not be reached.
const outcomeUnprotected = "unprotected"

// unprotected runs the handler although nothing can be recorded.
func (p *handlerRunner) unprotected(c *call, err error) {
	p.guard.Observe(c.r.Context(), onlyonce.Event{
		Outcome: outcomeUnprotected, Record: onlyonce.Record{ID: c.request.ID},
		Fingerprint: c.request.Fingerprint, Err: err,
	})
	b := &body{data: c.scratch.body}
	defer b.Close()
	c.w.Header().Set(headerProtected, "no")
	p.handler.ServeHTTP(c.w, c.again(c.r.Context(), b))
}
