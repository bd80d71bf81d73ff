package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxSilence is how long nothing may arrive on a connection of a sharedTransport while
// a response is due, before it gets no more requests.
const maxSilence = 5 * time.Second

// A sharedTransport is a Transport whose connections carry many requests at a time
// (HTTP/2). If a server's machine dies, or a network forgets the connection, nothing
// arrives on it any more, not even its end. net/http would send hundreds of requests over
// it before it opened another one, and all their outcomes would be unknown. Therefore, a
// new Transport takes over if nothing has arrived for maxSilence, or if the earlier one
// has locked up. Its requests go on as long as it responds, because the server may only be
// slow.
type sharedTransport struct {
	current atomic.Pointer[http.Transport]
	silence time.Duration
	connect time.Duration // for a connection
	stall   time.Duration // for a piece of a request
}

func newSharedTransport(t *http.Transport, u *Upstream) *sharedTransport {
	s := &sharedTransport{silence: maxSilence, connect: u.DialTimeout + u.TLSTimeout, stall: u.StallTimeout}
	if t.ResponseHeaderTimeout > 0 {
		s.silence = min(s.silence, t.ResponseHeaderTimeout/2)
	}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countingConn{Conn: c}, nil
	}
	s.current.Store(t)
	return s
}

// maxUnprocessed is how often an unsafe request without a body is sent at most, if the
// upstream says each time that it has not processed it.
const maxUnprocessed = 3

// RoundTrip sends a request. net/http would send one without a body again, whatever its
// method, if the upstream resets its stream with PROTOCOL_ERROR, after which it may have
// been processed. A request with an unsafe method therefore gets a body.
func (s *sharedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil || isSafe(r) {
		return s.send(r)
	}
	for n := 1; ; n++ {
		one := r.WithContext(r.Context())
		one.Body = io.NopCloser(emptyBody{})
		res, err := s.send(one)
		if err == nil || n == maxUnprocessed || !isUnprocessed(err) {
			return res, err
		}
	}
}

// send sends a request. It ends a request that the server does not take, and abandons one
// to which net/http no longer responds.
//
// net/http can lock up: in Go 1.26, one WINDOW_UPDATE that makes a stream's window too
// large (RFC 9113, section 6.9.1) does it. Then nothing ends its RoundTrip, neither a time
// limit nor the end of the context, and all later requests hang with it.
func (s *sharedTransport) send(r *http.Request) (*http.Response, error) {
	type response struct {
		*http.Response
		err error
	}
	t := s.current.Load()
	ctx, cancel := context.WithCancel(r.Context())
	e := s.expect(t)
	defer e.stop()
	got := make(chan response, 1)
	go func() {
		res, err := t.RoundTrip(e.follow(r.WithContext(ctx)))
		got <- response{res, err}
	}()
	var err error
	select {
	case g := <-got:
		context.AfterFunc(r.Context(), cancel) // the body of the response needs ctx until then
		if g.err != nil {
			return nil, e.errorOf(g.err)
		}
		if g.ProtoMajor == 2 {
			g.Body = &sharedBody{ReadCloser: g.Body, ctx: r.Context(), abandon: func() { s.replace(t) }}
		}
		return g.Response, nil
	case <-e.late:
		if err = os.ErrDeadlineExceeded; e.state.Load() == noConn {
			s.replace(t) // it should have ended by itself
		}
	case <-r.Context().Done():
		err = r.Context().Err()
	}
	cancel()
	select {
	case g := <-got:
		if g.err == nil {
			_ = g.Body.Close()
		}
	case <-time.After(lockedUp):
		s.replace(t)
	}
	return nil, e.errorOf(err)
}

// lockedUp is how long net/http may take to end a request, or longer than its own time
// limits.
const lockedUp = time.Second

// The states of an expectation.
const (
	noConn    = iota // the request has no connection yet
	hasConn          // it may have been sent
	abandoned        // it must not be sent any more
)

// An expectation is the next event that is due for a request: a connection, then that each piece of
// its body is taken, and then the header of its response.
type expectation struct {
	state  atomic.Int32
	late   chan struct{} // closed when something is overdue
	conn   pause
	piece  pause
	header pause
	silent pause
	last   atomic.Pointer[connReads]
}

// connReads is the number of bytes that a connection had read when it got a request.
type connReads struct {
	over  *countingConn
	reads int64
}

// errorOf returns the error of a request that has failed with err. If it has no connection
// by now, it gets none, and the error is an unsentError.
func (e *expectation) errorOf(err error) error {
	if e.state.CompareAndSwap(noConn, abandoned) {
		return &unsentError{err}
	}
	return err
}

// An unsentError is the error of a request of which nothing was sent.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// isUnsent reports whether nothing was sent of the request with this error.
func isUnsent(err error) bool {
	var unsent *unsentError
	return errors.As(err, &unsent)
}

// expect returns the expectation of a request that is sent now.
func (s *sharedTransport) expect(t *http.Transport) *expectation {
	e := &expectation{late: make(chan struct{})}
	overdue := sync.OnceFunc(func() { close(e.late) })
	e.conn = newPause(s.connect+lockedUp, overdue)
	e.piece = newPause(s.stall, overdue)
	e.header = newPause(s.stall+t.ResponseHeaderTimeout+lockedUp, overdue)
	if t.ResponseHeaderTimeout <= 0 {
		e.header.limit = math.MaxInt64
	}
	e.silent = newPause(s.silence, func() {
		if l := e.last.Load(); l.over.reads.Load() == l.reads {
			s.replace(t)
		}
	})
	e.conn.begin()
	return e
}

func (e *expectation) stop() {
	for _, p := range []pause{e.conn, e.piece, e.header, e.silent} {
		p.Stop()
	}
}

// follow returns the request, which tells e how far it is.
func (e *expectation) follow(r *http.Request) *http.Request {
	hasBody := r.Body != nil && r.Body != http.NoBody
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if !e.state.CompareAndSwap(noConn, hasConn) && e.state.Load() == abandoned {
				runtime.Goexit() // it counts as not sent
			}
			e.conn.Stop()
			if hasBody {
				e.piece.begin() // the header
			} else {
				e.header.begin()
			}
			if c := sharedConn(got.Conn); c != nil {
				e.last.Store(&connReads{c, c.reads.Load()})
				e.silent.begin()
			}
		},
	}))
	if hasBody {
		r.Body = &expectedBody{r.Body, e}
	}
	return r
}

// An expectedBody is the body of a request. A Read shows that the piece before was sent.
type expectedBody struct {
	io.ReadCloser
	of *expectation
}

func (b *expectedBody) Read(p []byte) (int, error) {
	b.of.piece.Stop()
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		b.of.piece.begin()
	} else {
		b.of.header.begin()
	}
	return n, err
}

// replace puts a new Transport in the place of t, unless another request has done so.
func (s *sharedTransport) replace(t *http.Transport) {
	if s.current.CompareAndSwap(t, t.Clone()) {
		go t.CloseIdleConnections() // it may have locked up
	}
}

// CloseIdleConnections does not wait until they are closed: net/http may have locked up.
func (s *sharedTransport) CloseIdleConnections() { go s.current.Load().CloseIdleConnections() }

// A sharedBody is the body of a response over HTTP/2. Read and Close end once the request
// has been canceled, even if net/http has locked up.
type sharedBody struct {
	io.ReadCloser
	ctx    context.Context // of the request
	piece  *[32 << 10]byte // buffer into which net/http reads
	got    chan pieceRead
	locked bool // net/http has locked up, and may still use piece

	abandon func() // the Transport, which has locked up
}

type pieceRead struct {
	n   int
	err error
}

func (b *sharedBody) Read(p []byte) (int, error) {
	if b.locked {
		return 0, context.Cause(b.ctx)
	}
	if b.piece == nil {
		b.piece, b.got = copyBuffers.Get().(*[32 << 10]byte), make(chan pieceRead, 1)
	}
	go func(piece []byte) {
		n, err := b.ReadCloser.Read(piece)
		b.got <- pieceRead{n, err}
	}(b.piece[:min(len(p), len(b.piece))])
	select {
	case r := <-b.got:
		return copy(p, b.piece[:r.n]), r.err
	case <-b.ctx.Done():
	}
	select {
	case r := <-b.got:
		return copy(p, b.piece[:r.n]), r.err
	case <-time.After(lockedUp):
		b.locked = true
		b.abandon()
		return 0, context.Cause(b.ctx)
	}
}

func (b *sharedBody) Close() error {
	if b.piece != nil && !b.locked {
		copyBuffers.Put(b.piece)
		b.piece = nil
	}
	closed := make(chan error, 1)
	go func() { closed <- b.ReadCloser.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(lockedUp):
		return nil
	}
}

// A countingConn counts the Reads that returned something.
type countingConn struct {
	net.Conn
	reads atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

// sharedConn returns the countingConn below a connection of net/http, or nil if the
// connection carries one request at a time.
func sharedConn(c net.Conn) *countingConn {
	if over, ok := c.(*tls.Conn); ok {
		if over.ConnectionState().NegotiatedProtocol != "h2" {
			return nil
		}
		c = over.NetConn()
	}
	counting, _ := c.(*countingConn)
	return counting
}
