package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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
// new Transport takes over if nothing has arrived for maxSilence. The requests that the
// earlier one has go on, because the server may only be slow.
type sharedTransport struct {
	current atomic.Pointer[http.Transport]
	silence time.Duration
}

func newSharedTransport(t *http.Transport) *sharedTransport {
	s := &sharedTransport{silence: maxSilence}
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

func (s *sharedTransport) send(r *http.Request) (*http.Response, error) {
	type sent struct {
		over  *countingConn
		reads int64
	}
	t := s.current.Load()
	var last atomic.Pointer[sent]
	silent := newPause(s.silence, func() {
		if l := last.Load(); l.over.reads.Load() == l.reads {
			s.replace(t)
		}
	})
	defer silent.Stop()
	return t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			if c := sharedConn(got.Conn); c != nil {
				last.Store(&sent{c, c.reads.Load()})
				silent.begin()
			}
		},
	})))
}

// replace puts a new Transport in the place of t, unless another request has done so.
func (s *sharedTransport) replace(t *http.Transport) {
	if s.current.CompareAndSwap(t, t.Clone()) {
		t.CloseIdleConnections()
	}
}

func (s *sharedTransport) CloseIdleConnections() { s.current.Load().CloseIdleConnections() }

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
