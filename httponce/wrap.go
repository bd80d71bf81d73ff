package httponce

import (
	"context"
	"errors"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// Wrap lets a request with an idempotency key run h once; a repeat gets the first
// answer. Requests without a key, and those of other methods, pass untouched. It
// panics on a Config that makes no sense.
//
// h's request has the attempt in its context (see onlyonce.Current). That
// context does not end when the client goes away, but when the lease is lost. An
// answer of 500 or more means that the command failed, and the next request
// with the key runs it again; see also DontStore and Unknown. A panic leaves
// the outcome unknown and goes on.
//
// A handler must not go on after it has returned. http.TimeoutHandler answers while
// its handler still runs, so it belongs round Wrap, where the command comes to
// its end and the repeat gets its answer; Wrap panics if it is h itself, and if
// it is further inside, its answer leaves the outcome unknown.
func Wrap(g *onlyonce.Guard, h http.Handler, cfg Config) http.Handler {
	if g == nil || h == nil {
		panic("httponce: Wrap: the Guard or the handler is nil")
	}
	checkNotTimeout(h)
	return newLayer(g, cfg.withDefaults("Wrap"), &handlerRunner{guard: g, handler: h})
}

// handlerRunner runs an http.Handler and records its answer after it.
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

// finish records the answer, and then lets it leave.
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
