package httponce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
)

// WrapTx is Wrap for a handler whose rows are in the store's own database: its
// rows and its response are committed together, or neither is, before a byte of
// the response is sent. Without a key, the handler also runs in a transaction,
// and nothing is recorded; a failure is reported to the Guard's Observer.
//
// The rows are rolled back when h returns an error or panics, when its status
// is 500 or more, or 499, when it calls Unknown, and when its status is 400 or
// more and the response is not stored. Otherwise, they are committed. A response that is
// shorter than the Content-Length that h has set counts as an error, and so does one of gRPC,
// gRPC-Web or a stream of Connect that has no outcome. After an error,
// the command has failed, and onlyonce.Final and onlyonce.Unknown around the
// error have their usual meaning. The client gets the response that h wrote if
// its status is 400 or more, or else a problem of status 500.
//
// h may run more than once if the database requires a retry, each time with a
// new request. A response can't stream: Flush and Hijack are not supported, and
// a response of more than 16 times Config.MaxResponse is an error that rolls
// back. After a panic, nothing is recorded.
//
// A route of WrapTx belongs in no Wrap and in no middleware of an adapter: WrapTx panics at a
// request with a key that one around it protects already.
//
// If the database rejects the commit, for example because of a deferred constraint or
// because the response is too large, the client gets a problem of status 500. If the
// commit gets no response, the store finds out whether it took effect,
// and the client gets the response or a problem accordingly. If the store can't
// find out, the client gets a problem of status 503 with CodeOutcomeUnknown and
// Retry-After, and a repeat finds out. Without a key, its status is 500.
func WrapTx[TX any](g *onlyonce.TxGuard[TX], h func(http.ResponseWriter, *http.Request, TX) error, cfg Config) http.Handler {
	if g == nil || h == nil {
		panic("httponce: WrapTx: the TxGuard or the handler is nil")
	}
	if cfg.RunUnprotected {
		panic("httponce: WrapTx: Config.RunUnprotected is not supported: without the store there is no transaction: leave it false")
	}
	return &middleware{protection: newProtection(g.Guard, cfg.withDefaults("WrapTx")), runner: &txRunner[TX]{guard: g, handler: h}}
}

// txRunner runs a handler in a transaction that records its response.
type txRunner[TX any] struct {
	guard   *onlyonce.TxGuard[TX]
	handler func(http.ResponseWriter, *http.Request, TX) error
}

func (t *txRunner[TX]) serveKeyed(c *call) {
	a, err := t.guard.BeginTx(c.r.Context(), c.request, func(ctx context.Context, tx TX) (onlyonce.Settlement, error) {
		c.attempt = onlyonce.Current(ctx)
		c.expectNoReplay()
		return t.run(ctx, c, tx)
	})
	switch {
	case handlerRolledBack(err) && !errors.Is(err, onlyonce.ErrLost): // otherwise, the command's response is that of another attempt
		rec := c.attempt.Record()
		c.account(&rec)
		c.sendResponse(nil)
	case err != nil:
		c.rejectError(err)
	case a.Replayed():
		c.replay(a)
	default:
		rec := a.Record()
		c.account(&rec)
		c.sendResponse(&rec)
	}
}

func (t *txRunner[TX]) serveUnkeyed(pt *protection, w http.ResponseWriter, r *http.Request) {
	c := newCall(pt, w, r)
	defer c.recycle()
	if p := c.admitUncounted(); p != nil {
		c.rejectUnread(*p)
		return
	}
	defer c.release()
	if !c.readBody() {
		return
	}
	began := time.Now()
	err := t.guard.Transact(r.Context(), func(ctx context.Context, tx TX) error {
		_, err := t.run(ctx, c, tx)
		return err
	})
	t.observeUnkeyed(c, began, err)
	if err != nil && !handlerRolledBack(err) {
		c.rejectError(err)
		return
	}
	c.sendResponse(nil)
}

// serveNested panics: the rows would be committed before the middleware around this one records
// the response.
func (t *txRunner[TX]) serveNested(http.ResponseWriter, *http.Request) {
	panic("httponce: WrapTx: a middleware around it protects the same request, so that rows and response would not be committed together: " +
		"leave the route out of that middleware, or let that protect it and call InTx in the handler; see docs/frameworks.md")
}

// observeUnkeyed notifies the Observer of a request without a key whose transaction failed
// with err: no other call reports a handler's error. A response below 500 is not a failure.
func (t *txRunner[TX]) observeUnkeyed(c *call, began time.Time, err error) {
	outcome := onlyonce.OutcomeUnavailable
	switch {
	case err == nil, handlerRolledBack(err) && c.response.Status() < 500, c.r.Context().Err() != nil && !handlerRolledBack(err):
		return
	case handlerRolledBack(err):
		outcome = onlyonce.OutcomeFailed
	case errors.Is(err, onlyonce.ErrUnknown):
		outcome = onlyonce.OutcomeUnknown
	}
	t.guard.Observe(c.r.Context(), onlyonce.Event{
		Outcome: outcome, Record: onlyonce.Record{ID: onlyonce.ID{Operation: c.operation(c.r)}},
		Duration: time.Since(began), Err: err,
	})
}

func (t *txRunner[TX]) run(ctx context.Context, c *call, tx TX) (onlyonce.Settlement, error) {
	x := newExchange(ctx, c, true)
	defer x.close()
	returned := false
	defer func() {
		if !returned {
			x.wroteLate.Store(true)
			x.response.Abandon()
		}
	}()
	err := t.handler(x.response.Writer(), x.ownRequest(), tx)
	x.checkBypassed()
	x.checkRouted()
	returned = true
	return t.settle(c, x, err)
}

// settle returns how a transaction ends whose handler returned err. Its error is
// a rollback.
func (t *txRunner[TX]) settle(c *call, x *exchange, err error) (onlyonce.Settlement, error) {
	a := &x.response
	status, cut := x.written()
	if cut != nil {
		err = errors.Join(cut, err)
	}
	var failure onlyonce.Settlement
	if err != nil {
		failure = onlyonce.Failure(err)
	}
	if err != nil && (status < 400 || cut != nil) {
		a.Discard()
		c.rejectTo(a.Writer(), failureProblem(failure, err))
	}
	a.Close()
	s, commits := x.settlement(response.Buffered)
	switch {
	case err == nil && commits:
		return s, nil
	case err == nil:
		err = fmt.Errorf("the handler responded with status %d", a.Status())
	case x.errorDecides():
		s = failure
		s.Result = x.result()
	}
	return s, &rollback{err}
}

func failureProblem(s onlyonce.Settlement, err error) Problem {
	p := commandFailed
	switch {
	case errors.Is(err, response.ErrTooLarge):
		p = responseTooLarge
	case errors.Is(err, response.ErrNoMemory):
		p = overloaded
	case s.State == onlyonce.StateUnknown:
		p = outcomeUnknown
		p.Status = http.StatusInternalServerError
	case s.Final:
		p = failureKept
	}
	p.Err = err
	return p
}

// A rollback is an error with which a transaction ends as it should.
type rollback struct{ err error }

func (r *rollback) Error() string { return r.err.Error() }
func (r *rollback) Unwrap() error { return r.err }

func handlerRolledBack(err error) bool {
	var r *rollback
	return errors.As(err, &r)
}

// InTx commits fn's rows together with the response that the handler has
// written when fn returns. It is for a handler in Wrap that first does work
// outside the transaction, such as calling another service. Pass the TxGuard
// whose Guard was passed to Wrap.
//
// When InTx returns nil, the rows are committed and the response is recorded;
// later writes to the response are rejected, and reported to the Guard's Observer,
// because they are missing in it. When fn returns an error, its rows
// are rolled back, the part of the response that it wrote is dropped, and InTx
// returns that error. The handler can then write another response, also after it
// has recovered from a panic of fn. A response that makes WrapTx roll back also
// rolls back here, with an error. When the commit fails or the lease was lost,
// the client gets a problem, whatever else the handler does. If the transaction could not
// begin, Unknown still counts. If its commit failed, the command has failed, so call a service
// that must not be called again in a Step.
//
// fn may run more than once if the database requires a retry. Each run finds r,
// its body and the response as they were when InTx was called. Without a key,
// there is nothing to record, and fn's rows are committed alone. In that case,
// a retry of fn does not find a body that fn has read before, so read the body before
// calling InTx.
func InTx[TX any](r *http.Request, g *onlyonce.TxGuard[TX], fn func(TX) error) error {
	if g == nil || fn == nil {
		panic("httponce: InTx: the TxGuard or the function is nil")
	}
	was, runs := r.Clone(r.Context()), 0
	again := func() {
		if runs++; runs == 1 {
			return
		}
		if was.MultipartForm == nil {
			removeFiles(r)
		}
		*r = *was.Clone(was.Context())
	}
	x := exchangeOf(r)
	if x == nil {
		return g.Transact(r.Context(), func(_ context.Context, tx TX) error {
			again()
			return fn(tx)
		})
	}
	before, err := x.response.EnterTx()
	if err != nil {
		return err
	}
	var failed error
	rest, said := x.body.rest(), x.flags.Load()
	err = g.SettleTx(&x.run, x.attempt, func(_ context.Context, tx TX) (s onlyonce.Settlement, err error) {
		again()
		if x.response.Rewind(before); runs > 1 {
			x.notifyDropped()
		}
		x.body.rewind(rest)
		x.flags.And(said)
		s, failed = x.inTx(before, func() error { return fn(tx) })
		return s, failed
	})
	x.response.LeaveTx(err, failed)
	return err
}

// errPanicked is why the rows of a function that panicked are rolled back.
var errPanicked = errors.New("httponce: InTx: the function panicked")

// inTx runs fn and seals the response. After an error or a panic, the response that fn wrote
// is dropped. The handler may recover from the panic and respond.
func (x *exchange) inTx(before response.Mark, fn func() error) (onlyonce.Settlement, error) {
	returned := false
	defer func() {
		if !returned {
			x.rewind(before)
			x.response.LeaveTx(nil, errPanicked)
		}
	}()
	s, err := x.sealAfter(before, fn)
	returned = true
	return s, err
}

// rewind drops what the function has written of the response.
func (x *exchange) rewind(before response.Mark) {
	x.response.Rewind(before)
	x.notifyDropped()
}

// sealAfter is inTx without its panics.
func (x *exchange) sealAfter(before response.Mark, fn func() error) (onlyonce.Settlement, error) {
	err := fn()
	if _, cut := x.written(); cut != nil {
		err = errors.Join(cut, err)
	}
	if err != nil {
		x.rewind(before)
		return onlyonce.Settlement{}, err
	}
	if err = x.response.Seal(); err != nil {
		return onlyonce.Settlement{}, err
	}
	s, _ := x.settlement(response.Buffered)
	return s, nil
}
