package proxy

import (
	"context"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// sendHTTP2 sends a keyed request to an upstream that speaks HTTP/2.
func (rt *route) sendHTTP2(w slots.Response, r *http.Request, a *onlyonce.Attempt) {
	delete(r.Header, "Upgrade") // net/http would reject the request, and it would look as if it had been sent
	rt.dropRequestTrailers(r.Trailer)
	if a != nil {
		rec := a.Record()
		r.Header[httpfield.Attempt] = []string{strconv.Itoa(rec.Attempt)}
		r.Header[httpfield.Fence] = []string{strconv.FormatInt(rec.Fence, 10)}
	}
	began := time.Now()
	r, bounded := boundInterim(w, r)
	defer bounded.end(nil)
	late := func() { bounded.end(os.ErrDeadlineExceeded) }
	lost := func(w http.ResponseWriter, err error) {
		if context.Cause(r.Context()) == os.ErrDeadlineExceeded {
			err = os.ErrDeadlineExceeded
		}
		err = lostError(began, err)
		httponce.Unknown(r, err)
		rt.reject(w, r, rt.lostProblem(r, err), err)
	}
	var body *upstreamBody
	p := rt.passThrough
	p.Transport = noRetryTransport{rt.conns.keyedH2, &unclosedBody{r.Body}}
	p.ModifyResponse = func(res *http.Response) error {
		if rt.leavesUnknown(res.StatusCode) {
			httponce.Unknown(r, statusError(began, res.StatusCode))
		}
		body = &upstreamBody{ReadCloser: res.Body, grpc: res.StatusCode == http.StatusOK && httpfield.IsGRPC(res.Header.Get("Content-Type")), pause: newPause(rt.conns.StallTimeout, late), none: hasNoBody(res.StatusCode)}
		bounded.heldBack = !httpfield.IsEventStream(res.Header.Get("Content-Type"))
		if limit := rt.conns.BodyTimeout; limit > 0 && bounded.heldBack {
			body.left = &limit
		} else if limit > 0 {
			body.client, body.limit = httponce.ClientContext(r), limit
		}
		res.Body = body
		return rt.modify(res)
	}
	p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if isHeadTooLarge(err) {
			httponce.DontStore(r)
			rt.reject(w, r, requestInvalid, err)
			return
		}
		if isUnsent(err) || isUnprocessed(err) && bounded.passed == 0 { // an interim response shows that processing began
			httponce.DontStore(r)
			rt.reject(w, r, unreachable(true), err)
			return
		}
		lost(w, err)
	}
	defer func() {
		if body == nil {
			return
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
		if body.ended && body.grpc && lacksGRPCStatus(w.Header()) {
			body.broken = errNoGRPCStatus
		}
		switch {
		case body.broken == nil: // it was passed on, or its client has gone, and it counts even so
		case httponce.Discard(r):
			lost(bounded, body.broken)
		default:
			err := lostError(began, body.broken)
			httponce.Unknown(r, err)
			rt.cfg.report(r, err)
			panic(http.ErrAbortHandler) // the client must see that the response is truncated
		}
	}()
	p.ServeHTTP(bounded, r)
	dropTrailers(w.Header())
}

// hasNoBody reports whether a response with the status has no body.
func hasNoBody(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// errNoGRPCStatus is why a gRPC call has not ended, although its response has.
var errNoGRPCStatus = h1.Malformed("a gRPC response without a grpc-status")

// lacksGRPCStatus reports whether the header and the trailers of the response to a gRPC call do
// not say how the call ended, as if a server in between had lost the upstream.
func lacksGRPCStatus(h http.Header) bool {
	const status = "Grpc-Status"
	return len(h[status]) == 0 && len(h[http.TrailerPrefix+status]) == 0
}

// A pause limits how long a transfer may pause: its function is called if the pause
// takes longer. Stop ends the pause.
type pause struct {
	*time.Timer
	limit time.Duration
}

// newPause returns a pause that has not begun.
func newPause(limit time.Duration, then func()) pause {
	t := time.AfterFunc(limit, then)
	t.Stop()
	return pause{t, limit}
}

func (p pause) begin() { p.Reset(p.limit) }

// An unclosedBody is the body of a request to an upstream, and its Close does nothing: if a
// connection fails before the request is sent, net/http closes the body and then sends it over
// another connection. The body itself is closed when the handler returns.
type unclosedBody struct{ io.Reader }

func (unclosedBody) Close() error { return nil }

// An upstreamBody is the body of an upstream's response. Only the time during a Read is
// limited: between two Reads, the proxy waits for the client.
type upstreamBody struct {
	io.ReadCloser
	pause  pause
	left   *time.Duration  // how long all Reads together may still take; nil: no limit
	client context.Context // of the client of an event stream: if it has gone, left is limit
	limit  time.Duration
	grpc   bool  // it is that of a gRPC call
	none   bool  // the status allows no body
	ended  bool  // it was read to its end
	broken error // the error that ended the body before its end
}

func (b *upstreamBody) Read(p []byte) (int, error) {
	if b.left == nil && b.client != nil && b.client.Err() != nil {
		b.left = &b.limit
	}
	if b.left != nil {
		began := time.Now()
		defer func() { *b.left -= time.Since(began) }()
		b.pause.limit = min(b.pause.limit, *b.left)
	}
	b.pause.begin()
	defer b.pause.Stop()
	n, err := b.ReadCloser.Read(p)
	switch {
	case n > 0 && b.none:
		n, err = 0, errBody
		b.broken = err
	case err == io.EOF:
		b.ended = true
	case err != nil:
		b.broken = err
	}
	return n, err
}

// noRetryTransport sends each request once. net/http would send a request with an
// Idempotency-Key again if it has no body, so every request gets one.
type noRetryTransport struct {
	conns roundTripper
	body  *unclosedBody
}

func (o noRetryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		r.Body = io.NopCloser(emptyBody{})
	} else {
		r.Body = o.body
	}
	res, err := o.conns.RoundTrip(r)
	return res, withoutQuote(err)
}

// The texts of the errors with which net/http says that a request was not processed. It has
// neither types nor values for them.
const (
	textHeadTooLarge   = "http2: request header list larger than peer's advertised limit"
	textConnectionLost = "net/http: cannot rewind body after connection loss"
	textCannotRetry    = "http2: Transport: cannot retry err [" // and then one of the next two, and "]"
	textGoAway         = "http2: Transport received Server's graceful shutdown GOAWAY"
	textRefusedStream  = "; REFUSED_STREAM; received from peer" // the end of the text
)

// isHeadTooLarge reports whether net/http did not send the request because its head is larger
// than the upstream accepts.
func isHeadTooLarge(err error) bool { return err.Error() == textHeadTooLarge }

// isUnprocessed reports whether the error says that the upstream has not processed the
// request, and will not: it has reset the stream with REFUSED_STREAM, or the stream
// comes after the last one of its GOAWAY (RFC 9113, section 8.7), or the connection was
// lost before anything was sent.
func isUnprocessed(err error) bool {
	if err.Error() == textConnectionLost {
		return true
	}
	why, cannotRetry := strings.CutPrefix(err.Error(), textCannotRetry)
	why, _, _ = strings.Cut(why, "]")
	return cannotRetry && (why == textGoAway || strings.HasSuffix(why, textRefusedStream))
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
