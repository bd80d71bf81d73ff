package httponce

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
	"github.com/onlyonce-go/onlyonce/internal/breakoff"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// handlerRunner runs an http.Handler and then records its response.
type handlerRunner struct {
	guard   *onlyonce.Guard
	handler http.Handler
}

func (p *handlerRunner) serveUnkeyed(_ *protection, w http.ResponseWriter, r *http.Request) {
	p.handler.ServeHTTP(w, r)
}

// serveNested panics if the middleware around this one has another Guard, whose store and whose
// policy for unknown outcomes would be those of the command.
func (p *handlerRunner) serveNested(w http.ResponseWriter, r *http.Request) {
	if x := exchangeOf(r); x != nil && x.guard != p.guard {
		panic("httponce: Wrap: a middleware of another Guard around it protects the same request, so that this one's Guard would have no say: " +
			"leave the route out of that middleware, or give both the same Guard; see docs/frameworks.md")
	}
	p.handler.ServeHTTP(w, r)
}

func (p *handlerRunner) serveKeyed(c *call) {
	a, err := p.guard.Begin(c.r.Context(), c.request)
	switch {
	case err != nil && c.cfg.RunUnprotected && errors.Is(err, onlyonce.ErrUnavailable) && !foundRecord(err):
		p.runUnprotected(c, err)
	case err != nil:
		c.rejectError(err)
	case a.Replayed():
		c.replay(a)
	default:
		c.attempt, c.stored = a, recordBytes
		c.expectNoReplay()
		p.run(c, a)
	}
}

// foundRecord reports whether the store has a record of the command, although this process can't
// use it.
func foundRecord(err error) bool {
	var found interface{ FoundRecord() }
	return errors.As(err, &found)
}

// run runs the handler under an attempt.
func (p *handlerRunner) run(c *call, a *onlyonce.Attempt) {
	ctx, stop := a.Context(c.r.Context())
	defer stop()
	if ctx.Err() != nil { // the Observer took most of the lease
		_ = a.Settle(c.r.Context(), onlyonce.Settlement{}) // observed
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
	x.checkRouted()
	sent := p.finish(c, x)
	if finished = true; !sent {
		breakoff.Response(c.w, c.r)
		panic(http.ErrAbortHandler)
	}
}

// finish records the response and then sends it. It returns false if a part has been sent
// of a response that is not the command's: the client must see that it breaks off.
func (p *handlerRunner) finish(c *call, x *exchange) (sent bool) {
	stage := x.response.Close()
	if rejected := x.response.Rejected(); rejected != nil {
		s := x.uncommitted(rejected)
		err := x.attempt.Settle(&x.run, s) // unless InTx did; observed
		rec := x.attempt.Record()
		c.account(&rec)
		if s.State == onlyonce.StateUnknown && (err == nil || errors.Is(err, onlyonce.ErrUnavailable)) {
			c.restoreHeader()
			c.reject(failureProblem(s, rejected))
		} else {
			c.rejectError(rejected)
		}
		return true
	}
	var err error
	if stage != response.Committed {
		s, _ := x.settlement(stage)
		err = x.attempt.Settle(&x.run, s)
		if errors.Is(err, onlyonce.ErrTooLarge) && len(s.Result.Body) > 0 {
			s.Result.Header, s.Result.Body = omitBody(s.Result.Header), nil
			err = x.attempt.Settle(&x.run, s)
		}
		if errors.Is(err, onlyonce.ErrTooLarge) { // because of the header or the ref
			s.Result.Header, s.Result.Body = omitBody(map[string][]string{}), nil
			x.attempt.SetRef("")
			err = x.attempt.Settle(&x.run, s)
		}
	}
	var recorded *onlyonce.Record
	if err == nil {
		rec := x.attempt.Record()
		c.account(&rec)
		recorded = &rec
	}
	switch {
	case stage == response.Streamed && errors.Is(err, onlyonce.ErrLost): // another attempt may have responded
		return false
	case stage == response.Streamed:
		c.sendEnd()
	case stage == response.Hijacked:
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight): // InTx is committing
		c.rejectError(err)
	default:
		c.sendResponse(recorded)
	}
	return true
}

// outcomeUnprotected is the Event.Outcome of a request that ran although the
// store could not be reached.
const outcomeUnprotected = "unprotected"

// runUnprotected runs the handler although nothing can be recorded.
func (p *handlerRunner) runUnprotected(c *call, err error) {
	p.guard.Observe(c.r.Context(), onlyonce.Event{
		Outcome: outcomeUnprotected, Record: onlyonce.Record{ID: c.request.ID},
		Fingerprint: bytes.Clone(c.request.Fingerprint), Err: err, // the Observer may keep it
	})
	c.expectNoReplay()
	b := new(body)
	defer b.Close()
	c.w.Header().Set(httpfield.Protected, "no")
	p.handler.ServeHTTP(c.w, c.requestWithBody(c.r.Context(), b))
}
