package httponce

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
)

// An exchange is what a handler gets of a keyed request: the request's context
// and body, and the answer.
type exchange struct {
	attempt *onlyonce.Attempt
	run     running
	body    body
	answer  answer
	base    *headerCopy
	marks   atomic.Uint32
	expires [1]string
}

// What a handler has said about its answer.
const (
	markDontStore = 1 << iota
	markDontStoreBody
	markUnknown
)

// DontStore says that the answer to r is not to be stored: a repeat runs again,
// as if the key had never been used. Without a key it does nothing.
func DontStore(r *http.Request) { mark(r, markDontStore) }

// DontStoreBody says that the answer to r has a body that must not be stored,
// such as a new secret: a repeat gets the status and the header, an empty
// body, and "Idempotency-Replay: omitted". Without a key it does nothing.
func DontStoreBody(r *http.Request) { mark(r, markDontStoreBody) }

// Unknown says that nobody knows whether r's command took effect: a call to a
// third party had no answer. What that means for a repeat is the Guard's
// setting. Without a key it does nothing.
func Unknown(r *http.Request) { mark(r, markUnknown) }

func mark(r *http.Request, m uint32) {
	if x := exchangeOf(r); x != nil {
		x.marks.Or(m)
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

func newExchange(l *layer, c *call, ctx context.Context) *exchange {
	h := c.w.Header()
	if c.x == nil {
		c.scratch.base.take(h)
	} else {
		c.scratch.base.restore(h)
	}
	x := &exchange{body: body{data: c.scratch.body}}
	x.run = running{ctx, x}
	x.answer.w, x.answer.cfg, x.answer.scratch = c.w, &l.cfg, c.scratch
	x.base = &c.scratch.base
	c.x = x
	return x
}

// request returns the request that the handler gets.
func (x *exchange) request(c *call) *http.Request { return c.again(&x.run, &x.body) }

// abandon notes that the handler panicked with p, or ended its goroutine, so
// that nobody knows what happened.
func (x *exchange) abandon(p any) {
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
	marks, status, cfg := x.marks.Load(), x.answer.status, x.answer.cfg
	switch {
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

// result returns the answer as it is stored.
func (x *exchange) result() onlyonce.Result {
	a := &x.answer
	r := onlyonce.Result{Status: a.status, Header: a.cfg.stored(a.w.Header(), a.trailers, x.base), Body: a.body}
	if !a.storable() || x.marks.Load()&markDontStoreBody != 0 {
		r.Header, r.Body = omitBody(r.Header), nil
	}
	return r
}
