package httponce

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
)

// An exchange is what a handler gets of a keyed request: the request's context
// and body, and the answer.
type exchange struct {
	guard   *onlyonce.Guard
	attempt *onlyonce.Attempt
	run     running
	handed  *http.Request // to the handler
	body    body
	answer  bufferedResponse
	base    *headerCopy
	flags   atomic.Uint32
	expires [1]string

	outer    outerState // before the handler ran
	toldLate atomic.Bool
}

// What a handler has said about its answer.
const (
	markDontStore = 1 << iota
	markDontStoreBody
	markUnknown
	markGivenUp // the handler still runs
)

// DontStore says that the response to r must not be stored: a repeat runs
// again, as if the key had never been used. Without a key, it does nothing.
func DontStore(r *http.Request) { mark(r, markDontStore) }

// DontStoreBody says that the body of the response to r must not be stored, for
// example because it contains a new secret. A repeat gets the status, the
// header, an empty body, and "Idempotency-Replay: omitted". Without a key, it
// does nothing.
func DontStoreBody(r *http.Request) { mark(r, markDontStoreBody) }

// Unknown says that it is unknown whether r's command took effect, for example
// because a call to a third party got no response. The Guard's Config decides
// what happens to a repeat. Without a key, it does nothing.
func Unknown(r *http.Request) { mark(r, markUnknown) }

// Discard drops the part of the response to r that the handler has written,
// including the header, and reports whether it did. It can't if part of the
// response has been sent, if InTx has committed it, or if the request has no
// key.
func Discard(r *http.Request) bool {
	x := exchangeOf(r)
	return x != nil && x.answer.restart()
}

func mark(r *http.Request, m uint32) {
	if x := exchangeOf(r); x != nil {
		x.flags.Or(m)
	}
}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

type exchangeKey struct{}

// running is the context of an exchange's handler.
type running struct {
	context.Context
	x *exchange
}

func (c *running) Value(key any) any {
	if key == (exchangeKey{}) {
		return c.x
	}
	return c.Context.Value(key)
}

func newExchange(l *middleware, c *call, ctx context.Context) *exchange {
	h := c.w.Header()
	if c.x == nil {
		c.scratch.base.snapshot(h)
	} else {
		c.scratch.base.restore(h)
	}
	x := &exchange{guard: l.guard, body: body{data: c.scratch.body}}
	x.run = running{ctx, x}
	x.answer.w, x.answer.cfg, x.answer.layer, x.answer.of, x.answer.scratch = c.w, &l.cfg, l, x, c.scratch
	x.outer, _ = stateOf(c.w)
	x.base = &c.scratch.base
	c.x = x
	return x
}

// request returns the request that the handler gets.
func (x *exchange) request(c *call) *http.Request {
	x.handed = c.again(&x.run, &x.body)
	return x.handed
}

// ownRequest is request for a handler that may run again: what it changes of the
// request, no other run sees.
func (x *exchange) ownRequest(c *call) *http.Request {
	x.handed = x.request(c).Clone(&x.run)
	return x.handed
}

// close takes the request away from its handler.
func (x *exchange) close(c *call) {
	_ = x.body.Close()
	if c.r.MultipartForm == nil { // else its files were there before
		removeFiles(x.handed)
	}
}

// removeFiles removes the files of a form that a handler has parsed, as net/http does
// with the request that it made itself.
func removeFiles(r *http.Request) {
	if r != nil && r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll()
	}
}

// abandon notes that the handler panicked with p, or ended its goroutine, so
// that nobody knows what happened.
func (x *exchange) abandon(p any) {
	x.toldLate.Store(true)
	x.answer.abandon()
	text := "the handler's goroutine ended"
	if p != nil {
		text = fmt.Sprint("panic: ", p)
	}
	_ = x.attempt.Settle(&x.run, onlyonce.Settlement{State: onlyonce.StateUnknown, Error: text}) // observed
	if p != nil {
		panic(p)
	}
}

// settlement says how the attempt ended, and whether its rows, if it has any,
// are committed.
func (x *exchange) settlement(at stage) (s onlyonce.Settlement, commits bool) {
	s, commits = x.verdict(at)
	if s.State == onlyonce.StateCompleted || s.State == onlyonce.StateFailed {
		s.Result = x.result()
	}
	return s, commits
}

// verdict is the settlement but for its result.
func (x *exchange) verdict(at stage) (s onlyonce.Settlement, commits bool) {
	marks, status, cfg := x.flags.Load(), x.answer.status, x.answer.cfg
	if cfg.StatusOf != nil && at != hijacked && status >= 200 {
		status = cfg.statusOf(x.answer.asSeen())
	}
	switch {
	case marks&markGivenUp != 0:
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: "an http.TimeoutHandler answered while its handler still ran"}, false
	case marks&markUnknown != 0:
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: "the handler said that nobody knows its outcome"}, false
	case marks&markDontStore != 0, at == hijacked, status < 200, status < 500 && !cfg.StoreStatus(status):
		return onlyonce.Settlement{}, status < 400
	case status < 500:
		return onlyonce.Settlement{State: onlyonce.StateCompleted}, true
	case x.run.Err() != nil:
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: fmt.Sprintf("status %d after the attempt's time had ended", status)}, false
	}
	return onlyonce.Settlement{State: onlyonce.StateFailed, Final: cfg.KeepErrors, Error: fmt.Sprintf("status %d", status)}, false
}

// asSeen returns the answer as the client sees it, its trailers among the header.
func (a *bufferedResponse) asSeen() onlyonce.Result {
	header := make(http.Header)
	for _, part := range []http.Header{a.w.Header(), a.trailers} {
		for name, vs := range part {
			header[strings.TrimPrefix(name, http.TrailerPrefix)] = vs
		}
	}
	return onlyonce.Result{Status: a.status, Header: header, Body: a.body}
}

// result returns the answer as it is stored.
func (x *exchange) result() onlyonce.Result {
	a := &x.answer
	r := onlyonce.Result{Status: a.status, Header: a.cfg.stored(a.w.Header(), a.trailers, x.base), Body: a.body}
	if !a.storable() || x.flags.Load()&markDontStoreBody != 0 {
		r.Header, r.Body = omitBody(r.Header), nil
	}
	return r
}
