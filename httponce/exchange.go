package httponce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/response"
	"github.com/onlyonce-go/onlyonce/httponce/internal/rpcstatus"
	"github.com/onlyonce-go/onlyonce/internal/breakoff"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
)

// An exchange is one run of the handler for a call: the request with its context and
// body, and the response.
type exchange struct {
	*protection
	call     *call // nil after the handler has returned
	attempt  *onlyonce.Attempt
	run      running
	stop     context.CancelFunc // ends run; nil: run has no deadline of its own
	handed   *http.Request      // to the handler
	body     body
	allInTx  bool // all of the handler runs in a transaction
	response response.Response
	flags    atomic.Uint32
	cause    atomic.Pointer[error] // of an unknown outcome, as the handler has said; nil: not known
	dropped  func()                // see OnDiscard; nil: nothing

	outer     outerState // before the handler ran
	wroteLate atomic.Bool
}

// These are the handler's decisions about its response.
const (
	markDontStore = 1 << iota
	markDontStoreBody
	markUnknown
)

// DontStore says that the response to r must not be stored: a repeat runs
// again, as if r had not been sent. What an earlier attempt left, unknown or
// failed, is still so. Without a key, it does nothing.
func DontStore(r *http.Request) { mark(r, markDontStore) }

// DontStoreBody says that the body of the response to r must not be stored, for
// example because it contains a new secret. A repeat gets the status, the
// header, an empty body, and "Idempotency-Replay: omitted", or is rejected with
// CodeResponseOmitted in RPC protocols. Without a key, it does nothing.
func DontStoreBody(r *http.Request) { mark(r, markDontStoreBody) }

// Unknown says that it is unknown whether r's command took effect, for example
// because a call to a third party got no response. The Guard's Config decides
// what happens to a repeat. The record keeps the text of cause, for operators; of
// several calls, the first that has one counts. A nil cause is not known. Without a
// key, Unknown does nothing.
func Unknown(r *http.Request, cause error) {
	if x := exchangeOf(r); x != nil {
		if cause != nil {
			x.cause.CompareAndSwap(nil, &cause)
		}
		x.flags.Or(markUnknown)
	}
}

// Discard drops the part of the response to r that the handler has written,
// including the header, and reports whether it did. It can't if part of the
// response has been sent, if InTx has committed it, or if the request has no
// key.
func Discard(r *http.Request) bool {
	x := exchangeOf(r)
	if x == nil || !x.response.DiscardUnsent() {
		return false
	}
	x.notifyDropped()
	return true
}

// OnDiscard sets a function that is called when the part of the response to r that the handler
// has written is dropped: by Discard, and when a function of InTx fails or runs again. It is for
// adapters to frameworks whose ResponseWriter remembers what was written. The function is called
// on the goroutine of Discard or InTx. Without a key, OnDiscard does nothing.
func OnDiscard(r *http.Request, dropped func()) {
	if x := exchangeOf(r); x != nil {
		x.dropped = dropped
	}
}

func (x *exchange) notifyDropped() {
	if x.dropped != nil {
		x.dropped()
	}
}

// ClientContext returns the context of the client's own request, which ends when the client
// has gone. The context of r does not end then, so that the command can finish. Without a
// key, the two are the same. Call ClientContext before the handler returns.
func ClientContext(r *http.Request) context.Context {
	if x := exchangeOf(r); x != nil {
		return x.call.r.Context()
	}
	return r.Context()
}

// WithDeadline returns a context for a request whose handler must return by a point in
// time, because the process may be stopped after it, as that of an AWS Lambda function is. The
// context that Wrap and WrapTx give to the handler does not end with ctx, but it ends at that
// time. With Wrap, a response of 500 or more that follows leaves the outcome unknown; any other
// is recorded as usual. WithDeadline is for code that calls the outermost handler. The process
// must live long enough after at for the response to be recorded.
func WithDeadline(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, deadlineKey{}, at)
}

type deadlineKey struct{}

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

// newExchange returns an exchange of the call, whose response is one in a
// transaction if inTx. What another exchange of the call has set in the header
// is dropped.
func newExchange(ctx context.Context, c *call, inTx bool) *exchange {
	if c.response == nil {
		c.headers.Base.Take(c.w.Header())
	} else {
		c.restoreHeader()
	}
	x := &exchange{protection: c.protection, call: c, allInTx: inTx}
	// A call of ctx.Value would make a context, see Attempt.Context.
	if at, ok := c.r.Context().Value(deadlineKey{}).(time.Time); ok {
		ctx, x.stop = context.WithDeadline(ctx, at)
	}
	x.run = running{ctx, x}
	x.response.Start(response.Setup{
		To: c.w, Context: &x.run, Owner: x, Memory: &c.uses.Response, Scratch: &c.headers,
		MaxBody: c.cfg.MaxResponse, InTx: inTx,
	})
	x.outer, _ = stateOf(c.w)
	c.response = &x.response
	return x
}

// request returns the request that the handler gets.
func (x *exchange) request() *http.Request {
	x.handed = x.call.requestWithBody(&x.run, &x.body)
	return x.handed
}

// ownRequest is request for a handler that may run again: no other run sees its changes
// to the request.
func (x *exchange) ownRequest() *http.Request {
	x.handed = x.request().Clone(&x.run)
	return x.handed
}

// close ends the handler's use of the request.
func (x *exchange) close() {
	if x.stop != nil {
		x.stop()
	}
	_ = x.body.Close()
	if x.call.r.MultipartForm == nil { // otherwise the files belong to an outer handler
		removeFiles(x.handed)
	}
	x.call = nil
}

// removeFiles removes the files of a form that a handler has parsed, as net/http
// does with the request that it made itself.
func removeFiles(r *http.Request) {
	if r != nil && r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll()
	}
}

// abandon settles the attempt as unknown, because the handler panicked with p or, if
// p is nil, ended its goroutine.
func (x *exchange) abandon(p any) {
	x.wroteLate.Store(true)
	if x.response.Abandon() == response.Streamed {
		breakoff.Response(x.call.w, x.call.r)
	}
	text := "the handler's goroutine ended"
	switch cause := x.cause.Load(); {
	case p == http.ErrAbortHandler && cause != nil: // the panic only breaks off the response
		text = (*cause).Error()
	case p != nil:
		text = fmt.Sprint("panic: ", p)
	}
	_ = x.attempt.Settle(&x.run, onlyonce.Settlement{State: onlyonce.StateUnknown, Error: text}) // observed
	rec := x.attempt.Record()
	x.call.account(&rec)
	if p != nil {
		panic(p)
	}
}

// BeginsToStream drops the request's body if the handler has read it.
func (x *exchange) BeginsToStream() {
	if x.body.Len() == 0 {
		x.call.dropBody()
	}
}

// Commits reports whether the rows of the response are to be committed.
func (x *exchange) Commits() bool {
	_, commits := x.decide(response.Buffered)
	return commits
}

// settlement returns how the attempt ended, and whether its rows, if it has any,
// are committed.
func (x *exchange) settlement(at response.Stage) (s onlyonce.Settlement, commits bool) {
	s, commits = x.decide(at)
	if s.State == onlyonce.StateCompleted || s.State == onlyonce.StateFailed {
		s.Result = x.result()
	}
	return s, commits
}

// decide returns the settlement without its result.
func (x *exchange) decide(at response.Stage) (s onlyonce.Settlement, commits bool) {
	flags, status := x.flags.Load(), x.response.Status()
	if at != response.Hijacked && status >= 200 && (x.cfg.StatusOf != nil || rpcstatus.Applies(x.response.Header())) {
		status = x.cfg.statusOf(x.asSeen())
	}
	inside := x.rejectionInside(status)
	unknown, isUnknown := x.unknown()
	switch incomplete := cmp.Or(x.response.Incomplete(), x.lacksOutcome(x.response.Status())); {
	case isUnknown:
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: unknown}, false
	case flags&markDontStore != 0, at == response.Hijacked, status < 200:
		return onlyonce.Settlement{}, status < 400
	case inside == CodeOutcomeUnknown:
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: "the response says that the outcome is unknown"}, false
	case !hasFailed(status) && !x.cfg.stores(status, x.response.Header()), inside == CodeBodyUnreadable, x.sendsBack(status):
		return onlyonce.Settlement{}, status < 400
	case incomplete != nil:
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: incomplete.Error()}, false
	case !hasFailed(status):
		return onlyonce.Settlement{State: onlyonce.StateCompleted}, true
	case x.run.Err() != nil && !x.allInTx: // a transaction is rolled back
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: fmt.Sprintf("status %d after the attempt's time had ended", status)}, false
	case x.cfg.UnknownStatus != nil && !x.allInTx && x.cfg.UnknownStatus(status):
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: fmt.Sprintf("status %d, after which the outcome is not known", status)}, false
	}
	return onlyonce.Settlement{State: onlyonce.StateFailed, Final: x.cfg.KeepErrors, Error: fmt.Sprintf("status %d", status)}, false
}

// unknown reports whether the outcome is unknown whatever the response says, and why.
func (x *exchange) unknown() (text string, is bool) {
	switch {
	case x.response.TimedOut():
		return "an http.TimeoutHandler responded while its handler was still running", true
	case x.flags.Load()&markUnknown != 0:
		return x.unknownText(), true
	case x.response.Panicked() && !x.allInTx: // a transaction is rolled back
		return "the handler panicked, and a function inside it recovered and responded", true
	}
	return "", false
}

// uncommitted returns how the attempt ends if the transaction of InTx did not begin because of
// cause: the handler may have had effects before.
func (x *exchange) uncommitted(cause error) onlyonce.Settlement {
	if text, is := x.unknown(); is {
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: text}
	}
	if x.run.Err() != nil {
		return onlyonce.Settlement{State: onlyonce.StateUnknown, Error: fmt.Sprintf("%v, after the attempt's time had ended", cause)}
	}
	return onlyonce.Failure(cause)
}

var errNoOutcome = errors.New("httponce: the handler wrote a response that does not say what became of the call: it has no grpc-status, or its stream has no end")

// lacksOutcome returns errNoOutcome for a response of an RPC protocol that is no more use to its
// client than one that is shorter than it declares. status is what has been written of it.
func (x *exchange) lacksOutcome(status int) error {
	a := &x.response
	if status > 0 && status != http.StatusOK || !rpcstatus.Applies(a.Header()) || !a.IsComplete() {
		return nil
	}
	if seen := x.asSeen(); rpcstatus.HasNoOutcome(seen.Header, seen.Body) {
		return errNoOutcome
	}
	return nil
}

// written returns the status that the handler of a transaction has written so far, or 0, and why
// the response is not one to commit.
func (x *exchange) written() (status int, cut error) {
	if status, cut = x.response.Written(); cut == nil {
		cut = x.lacksOutcome(status)
	}
	return status, cut
}

// sendsBack reports whether the response sends the client, with the same request, to where it
// came from, or to HTTPS there: then the command has not run. Another port is another server. In
// a transaction, which may have rows, it reports false.
func (x *exchange) sendsBack(status int) bool {
	if x.response.InTx || status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect {
		return false
	}
	r := x.call.r
	from, err := url.ParseRequestURI(r.RequestURI) // with what a handler has stripped from the path
	if err != nil {
		from = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	}
	from.Scheme, from.Host = "http", r.Host
	location := x.response.Header().Get("Location")
	to, err := from.Parse(location)
	return err == nil && location != "" && strings.EqualFold(to.Hostname(), from.Hostname()) &&
		(to.Scheme == "https" || to.Port() == from.Port()) && to.EscapedPath() == from.EscapedPath() && to.RawQuery == from.RawQuery
}

// rejectionInside returns the code of the Problem that the response is, if a server inside, which
// protects the request itself, does not say for good with it what became of the command: it may hold
// the command for a person (CodeOutcomeUnknown), or may not have received all of the request
// (CodeBodyUnreadable). Otherwise, and in a transaction, it returns "".
func (x *exchange) rejectionInside(status int) string {
	var code string
	switch status {
	case http.StatusBadRequest:
		code = CodeBodyUnreadable
	case http.StatusConflict, http.StatusInternalServerError:
		code = CodeOutcomeUnknown
	}
	a := &x.response
	if code == "" || a.InTx || !httpfield.IsType(a.Header().Get("Content-Type"), problemType) {
		return ""
	}
	var p struct {
		Code      string
		Retryable bool
	}
	if json.Unmarshal(a.Body(), &p) != nil || p.Code != code || code == CodeOutcomeUnknown && p.Retryable {
		return ""
	}
	return code
}

// hasFailed reports whether a command has failed whose response has this status.
func hasFailed(status int) bool {
	return status >= http.StatusInternalServerError || status == statuses.Canceled
}

func (x *exchange) unknownText() string {
	if cause := x.cause.Load(); cause != nil {
		return (*cause).Error()
	}
	return "the handler reported that its outcome is unknown"
}

// errorDecides reports whether the error that a handler in a transaction
// returns decides the outcome.
func (x *exchange) errorDecides() bool {
	return x.flags.Load()&(markUnknown|markDontStore) == 0 && !x.response.TimedOut()
}

// asSeen returns the response as the client sees it, its trailers among the
// header.
func (x *exchange) asSeen() onlyonce.Result {
	seen := onlyonce.Result{Status: x.response.Status(), Header: x.response.Header(), Body: x.response.Body()}
	if len(x.response.Trailers()) == 0 && !hasTrailers(seen.Header) {
		return seen
	}
	seen.Header = withTrailers(x.response.Header(), x.response.Trailers())
	return seen
}

// withTrailers returns a header that has the trailers in these under their own names.
func withTrailers(headers ...http.Header) http.Header {
	all := make(http.Header)
	for _, h := range headers {
		for name, vs := range h {
			all[strings.TrimPrefix(name, http.TrailerPrefix)] = vs
		}
	}
	return all
}

// hasTrailers reports whether a header has trailers that were not announced.
func hasTrailers(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// result returns the response as it is stored.
func (x *exchange) result() onlyonce.Result {
	a := &x.response
	r := onlyonce.Result{Status: a.Status(), Header: x.cfg.stored(a.Header(), a.Trailers(), &x.call.headers.Base), Body: a.Body()}
	if !a.IsComplete() || x.flags.Load()&markDontStoreBody != 0 {
		r.Header, r.Body = omitBody(r.Header), nil
	}
	return r
}

// An outerState is the state of a framework's own response, as its ResponseWriter reports it,
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

// hasWritten reports whether a header was written to w, if that is a ResponseWriter of net/http or
// is around one. Informational responses do not count. net/http has no method for that.
func hasWritten(w http.ResponseWriter) bool {
	for w != nil {
		v := reflect.Indirect(reflect.ValueOf(w))
		if v.Kind() != reflect.Struct || v.Type().PkgPath() != "net/http" {
			around, _ := w.(interface{ Unwrap() http.ResponseWriter })
			if around == nil {
				return false
			}
			w = around.Unwrap()
			continue
		}
		if http2 := reflect.Indirect(v.FieldByName("rws")); http2.Kind() == reflect.Struct {
			v = http2
		}
		wrote := v.FieldByName("wroteHeader")
		return wrote.Kind() == reflect.Bool && wrote.Bool()
	}
	return false
}

// checkBypassed panics if the handler wrote its response to the ResponseWriter
// around the middleware instead of the one that it was given: there is nothing to
// record then, and a repeat would run the handler again.
func (x *exchange) checkBypassed() {
	now, ok := stateOf(x.response.To)
	wrote := now.written != x.outer.written || now.status != x.outer.status && now.status >= 200 // others are informational
	if ok && wrote && x.response.IsHeldBack() || !ok && x.response.IsUntouched() && hasWritten(x.response.To) {
		panic("httponce: the handler wrote its response to the outer ResponseWriter, so it was not recorded: " +
			"wrap the handler itself, not a middleware that calls the next one (with gin: gin.WrapH), or pass on the ResponseWriter and the Request that the handler gets (with huma: humago.NewContext); see docs/frameworks.md")
	}
}

// checkRouted panics if the handler is a router that has matched a pattern, and the
// operation was chosen without one: then each path has its own keys.
func (x *exchange) checkRouted() {
	if x.cfg.Operation == nil && x.call.r.Pattern == "" && x.handed.Pattern != "" {
		panic(fmt.Sprintf("httponce: the router is inside the middleware: it matched %q after the operation had been chosen, so that each path has its own keys: "+
			"wrap the handlers of the routes (with chi: r.With(once).Post(…), not r.Use(once)), or set Config.Operation; see docs/frameworks.md", x.handed.Pattern))
	}
}

var errLate = errors.New("httponce: a response was written after the handler had returned, or after InTx had committed it: it did not reach the client, and a different response was recorded; see docs/frameworks.md")

// WroteLate reports to the Observer, once, that something writes to a response that
// has ended, for example an error handler that a framework runs after the wrapped
// handler.
func (x *exchange) WroteLate() {
	if x.wroteLate.Swap(true) {
		return
	}
	if attempt := onlyonce.Current(&x.run); attempt != nil {
		x.guard.Observe(context.WithoutCancel(x.run.Context), onlyonce.Event{Outcome: onlyonce.OutcomeUnrecorded, Record: attempt.Record(), Err: errLate})
	}
}
