package caddyonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/statuses"
)

// These are placeholders of reverse_proxy.
const (
	upstreamStatus  = "http.reverse_proxy.status_code"       // with which the upstream has responded
	upstreamAddress = "http.reverse_proxy.upstream.hostport" // of the upstream that was chosen
)

var errBroken = errors.New("the response broke off")

// errAgain ends a request that would be sent again. For reverse_proxy, it is one that was canceled, which
// it neither retries nor counts as a failure of the upstream.
type errAgain struct{}

func (errAgain) Error() string { return "the request was written once, and is not sent again" }

func (errAgain) Is(target error) bool { return target == context.Canceled }

// run serves a request that httponce admits with the next handlers.
func (h *Handler) run(w http.ResponseWriter, r *http.Request) {
	p := r.Context().Value(entryKey{}).(*entry)
	r.URL, r.RequestURI = p.rewritten, p.uri
	if w == http.ResponseWriter(&p.out) { // it is not protected
		p.leave()
		p.err = p.next.ServeHTTP(p.out.ResponseWriter, r)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	repl := replacer(r)
	repl.Delete(upstreamStatus) // of a handler before
	repl.Delete(upstreamAddress)
	r = r.WithContext(p.sent.observe(ctx, cancel, repl))
	if attempt := onlyonce.Current(ctx); attempt != nil {
		rec := attempt.Record()
		r.Header = r.Header.Clone()
		r.Header.Set(httpfield.Attempt, strconv.Itoa(rec.Attempt))
		r.Header.Set(httpfield.Fence, strconv.FormatInt(rec.Fence, 10))
		httpfield.DropDeadlines(r.Header)
	}
	in := &p.in
	in.ResponseWriter = w
	httponce.OnDiscard(r, func() { in.status = 0 })

	err := p.serve(in, r)
	received := p.sent.received()
	if p.sent.again.Load() && (err != nil || in.status == statuses.Canceled && httponce.Discard(r)) {
		status := http.StatusBadGateway
		if received >= http.StatusInternalServerError {
			status = received // a failure after which the request was not sent again
		}
		err = caddyhttp.Error(status, errAgain{})
	}
	h.classify(r, &p.sent, statusAfter(in, err), received, err)
	if err == nil {
		return
	}
	if in.status != 0 && !httponce.Discard(r) {
		httponce.Unknown(r, err)
		panic(http.ErrAbortHandler) // the client must see that the response is truncated
	}
	httponce.DontStoreBody(r) // handle_errors writes it
	p.err = err
	p.out.mute()
	w.WriteHeader(statusAfter(in, err))
}

// serve calls the next handlers. A response that reverse_proxy breaks off becomes an error if nothing of it
// was sent.
func (p *entry) serve(w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if httponce.Unknown(r, errBroken); v != http.ErrAbortHandler || !httponce.Discard(r) {
				panic(v)
			}
			err = caddyhttp.Error(http.StatusBadGateway, errBroken)
		}
	}()
	return p.next.ServeHTTP(w, r)
}

// statusAfter returns the status of a response, or the one that Caddy gives to an error.
func statusAfter(in *inner, err error) int {
	if err == nil {
		return cmp.Or(in.status, http.StatusOK)
	}
	var known caddyhttp.HandlerError
	if errors.As(err, &known) && known.StatusCode >= 200 && known.StatusCode <= 599 {
		return known.StatusCode
	}
	return http.StatusInternalServerError
}

// classify tells httponce what the status does not say about the outcome. received is the status of the upstream's
// response; 0: there is none.
func (h *Handler) classify(r *http.Request, sent *sendTrace, status, received int, err error) {
	failed := status >= http.StatusInternalServerError
	cause := func() error {
		if err != nil {
			return err
		}
		return fmt.Errorf("the response has the status %d", status)
	}
	switch unhandled, _ := caddyhttp.GetVar(r.Context(), "unhandled").(bool); {
	case received == 0 && (unhandled || failed && sent.unsent(err)):
		httponce.DontStore(r)
	case sent.unanswered(), err != nil && received == 0 && sent.isProxied() && (status == http.StatusBadGateway || status == http.StatusGatewayTimeout):
		httponce.Unknown(r, fmt.Errorf("the upstream got the request and did not respond: %w", cause()))
	case sent.again.Load() && err == nil:
		httponce.Unknown(r, fmt.Errorf("%w, and another handler has responded: %w", errAgain{}, cause()))
	case h.statuses.Unknown(status), h.statuses.Unknown(received):
		httponce.Unknown(r, cause())
	case failed && received != 0 && received < http.StatusInternalServerError:
		httponce.Unknown(r, fmt.Errorf("the upstream responded with status %d, and its response was replaced: %w", received, cause()))
	}
}

// A sendTrace observes how far a request gets on its way to upstreams.
type sendTrace struct {
	hooks httptrace.ClientTrace
	repl  *caddy.Replacer

	asked, connected, wrote, answered, http2, again atomic.Bool

	proxied atomic.Bool // reverse_proxy sent the last request, not a handler before it

	earlier atomic.Int64             // the status of a response to an earlier request than the last; 0: there is none
	surplus atomic.Pointer[net.Conn] // the connection on which the request would be sent again
}

// isProxied reports whether reverse_proxy has chosen an upstream.
func (s *sendTrace) isProxied() bool {
	_, chosen := s.repl.Get(upstreamAddress)
	return chosen
}

// response returns the status of the response to the last request, or 0 if reverse_proxy has not received it.
func (s *sendTrace) response() int {
	value, _ := s.repl.Get(upstreamStatus)
	status, _ := value.(int)
	return status
}

// received returns the status of the last response that reverse_proxy has received, or 0.
func (s *sendTrace) received() int { return cmp.Or(s.response(), int(s.earlier.Load())) }

// unsent reports whether nothing was sent to any upstream, although one should have got the request.
func (s *sendTrace) unsent(err error) bool {
	return !s.connected.Load() && (s.asked.Load() || errors.As(err, new(reverseproxy.DialError)))
}

// unanswered reports whether the header of a request was written, and nothing was received.
func (s *sendTrace) unanswered() bool { return s.wrote.Load() && !s.answered.Load() }

// isFinal reports whether the request that was written before must be the only one: nobody has said that
// it was not processed. An interim response or a part of a head says nothing, and neither does 499.
func (s *sendTrace) isFinal() bool {
	switch status := s.response(); {
	case status != 0:
		return status >= http.StatusInternalServerError || status == statuses.Canceled
	case s.http2.Load(), !s.wrote.Load():
		return false
	}
	return s.proxied.Load() || !s.answered.Load()
}

// observe returns a context with hooks for the client of net/http. A request with an Idempotency-Key and
// without a body counts as idempotent there, and is sent again if its connection ends; reverse_proxy sends
// one again with lb_retry_match or handle_response. The hooks prevent this: they end the request with cancel. Over
// HTTP/1, where it may be written nevertheless, they close its connection after the first header field, which is
// Host. Over HTTP/2 and HTTP/3, nothing is written after cancel, and other requests share the connection. (Over
// HTTP/2, net/http sends a request again only if the server has said that it did not process the first.)
func (s *sendTrace) observe(ctx context.Context, cancel context.CancelCauseFunc, repl *caddy.Replacer) context.Context {
	s.repl = repl
	s.hooks = httptrace.ClientTrace{
		GetConn: func(string) {
			s.asked.Store(true)
			if s.isFinal() {
				s.again.Store(true)
				cancel(errAgain{})
				return
			}
			s.earlier.Store(int64(s.received())) // a handler before may have asked another server
			repl.Delete(upstreamStatus)
			s.proxied.Store(s.isProxied())
			s.wrote.Store(false)
			s.answered.Store(false)
			s.http2.Store(false)
		},
		GotConn: func(c httptrace.GotConnInfo) {
			s.connected.Store(true)
			if s.again.Load() {
				conn := c.Conn
				s.surplus.Store(&conn)
				s.http2.Store(false)
			}
		},
		WroteHeaderField: func(name string, _ []string) {
			if strings.HasPrefix(name, ":") { // before all others
				s.http2.Store(true)
			} else if conn := s.surplus.Load(); conn != nil && !s.http2.Load() {
				_ = (*conn).Close()
			}
		},
		WroteHeaders:         func() { s.wrote.Store(true) },
		GotFirstResponseByte: func() { s.answered.Store(true) },
	}
	return httptrace.WithClientTrace(ctx, &s.hooks)
}

// inner is the ResponseWriter of the next handlers. It holds a response back until it is recorded, whether a
// handler flushes it or not, unless it is an event stream.
type inner struct {
	http.ResponseWriter
	status int
}

func (w *inner) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *inner) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *inner) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

func (w *inner) Flush() { _ = w.FlushError() } // as http.Flusher, which returns no error

func (w *inner) FlushError() error {
	if !httpfield.IsEventStream(w.Header().Get("Content-Type")) {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// outer is the ResponseWriter that httponce gets. After mute, what is written to it is dropped: the response
// to an error is for handle_errors to write.
type outer struct {
	http.ResponseWriter
	header http.Header // as it was at mute; nil: not muted
}

func (w *outer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *outer) mute() { w.header = w.Header().Clone() }

// restore drops what was set in the header after mute.
func (w *outer) restore() {
	if w.header != nil {
		clear(w.Header())
		maps.Copy(w.Header(), w.header)
	}
}

func (w *outer) WriteHeader(status int) {
	if w.header == nil {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *outer) Write(p []byte) (int, error) {
	if w.header != nil {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
