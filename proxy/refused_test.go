package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// These are the types, flags and error codes of HTTP/2 frames (RFC 9113).
const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway, frameWindow = 0, 1, 3, 4, 7, 8

	endStream, endHeaders = 1, 4

	noError, protocolError, refusedStream = 0, 1, 7
)

// A framed is a server that receives whole requests by HTTP/2, and does with each what
// answers says. It counts them.
type framed struct {
	requests atomic.Int32
	settings string // its first SETTINGS
	answers  func(c *framedConn, stream uint32, body string)
}

type framedConn struct{ net.Conn }

func (c *framedConn) frame(kind, flags byte, stream uint32, payload string) {
	n := len(payload)
	head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}, stream)
	_, _ = c.Write(append(head, payload...))
}

func (c *framedConn) reset(stream, code uint32) {
	c.frame(frameReset, 0, stream, string(binary.BigEndian.AppendUint32(nil, code)))
}

func (c *framedConn) goAway(last, code uint32) {
	c.frame(frameGoAway, 0, 0, string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)))
}

func (c *framedConn) ok(stream uint32, body string) {
	c.frame(frameHeaders, endHeaders, stream, "\x88") // :status 200
	c.frame(frameData, endStream, stream, fmt.Sprint(len(body)))
}

func (s *framed) start(t *testing.T) *proxy.Upstream {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			open.Go(func() { s.serve(&framedConn{c}) })
		}
	})
	t.Cleanup(open.Wait)
	t.Cleanup(func() { l.Close() })
	return &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), HTTP2: true}
}

func (s *framed) serve(c *framedConn) {
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	c.frame(frameSettings, 0, 0, s.settings)
	c.frame(frameWindow, 0, 0, string(binary.BigEndian.AppendUint32(nil, 1<<20))) // for all bodies together
	bodies := map[uint32]string{}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(head[5:])
		switch {
		case head[3] == frameSettings && head[4] == 0:
			c.frame(frameSettings, 1, 0, "")
		case head[3] == frameData:
			bodies[stream] += string(payload)
		}
		if head[3] <= frameHeaders && head[4]&endStream != 0 {
			s.requests.Add(1)
			s.answers(c, stream, bodies[stream])
		}
	}
}

// TestOutcome_ARequestThatAnHTTP2UpstreamHasNotProcessedReleasesItsKey: the upstream says
// so with REFUSED_STREAM, or with the last stream of a GOAWAY, as servers do that limit
// the requests of a connection, or stop (RFC 9113, section 8.7). All else leaves the
// outcome unknown, and a repeat is held: also a REFUSED_STREAM after an interim response,
// with which processing has begun.
func TestOutcome_ARequestThatAnHTTP2UpstreamHasNotProcessedReleasesItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    func(c *framedConn, stream uint32)
		released bool
	}{
		"refused":        {func(c *framedConn, stream uint32) { c.reset(stream, refusedStream) }, true},
		"after the last": {func(c *framedConn, stream uint32) { c.goAway(stream-1, noError) }, true},
		"refused after an interim response": {func(c *framedConn, stream uint32) {
			c.frame(frameHeaders, endHeaders, stream, "\x08\x03103") // :status 103
			c.reset(stream, refusedStream)
		}, false},
		"reset": {func(c *framedConn, stream uint32) { c.reset(stream, protocolError) }, false},
		"the last": {func(c *framedConn, stream uint32) {
			c.goAway(stream, noError)
			_ = c.Close()
		}, false},
	} {
		for _, body := range []string{"", strings.Repeat("x", 40_000)} {
			t.Run(fmt.Sprint(name, " ", len(body)), func(t *testing.T) {
				t.Parallel()
				s := &framed{}
				s.answers = func(conn *framedConn, stream uint32, body string) {
					if s.requests.Load() == 1 {
						c.first(conn, stream)
						return
					}
					conn.ok(stream, body)
				}
				addr := orders(t, s.start(t), onlyonce.Config{HoldUnknown: true}, nil)
				first, got := post(t, addr, "k", body)
				if n := s.requests.Load(); n != 1 {
					t.Errorf("it was sent %d times", n)
				}
				second, again := post(t, addr, "k", body)
				if c.released {
					wantProblem(t, first, got, 503, "upstream_unreachable", true)
					wantResponse(t, second, again, 200, fmt.Sprint(len(body)))
				} else {
					wantProblem(t, first, got, 502, "upstream_failed", false)
					wantResponse(t, second, again, 409, "outcome_unknown")
				}
			})
		}
	}
}

// acceptingHeaders starts an HTTP/2 upstream that accepts headers of at most so many bytes, and a
// proxy that knows it.
func acceptingHeaders(t *testing.T, most uint32) (s *framed, addr string) {
	t.Helper()
	const maxHeaderListSize = 6
	s = &framed{settings: string(binary.BigEndian.AppendUint32([]byte{0, maxHeaderListSize}, most))}
	s.answers = func(c *framedConn, stream uint32, body string) { c.ok(stream, body) }
	up := s.start(t)
	up.KeepIdle = time.Minute
	addr = orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	res, got := post(t, addr, "first", "x") // after which the proxy knows the limit
	wantResponse(t, res, got, 200, "1")
	return s, addr
}

// TestOutcome_AHeaderThatIsLongerThanAnHTTP2UpstreamAcceptsLeavesNoUnknownOutcome: net/http
// sends nothing then.
func TestOutcome_AHeaderThatIsLongerThanAnHTTP2UpstreamAcceptsLeavesNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	s, addr := acceptingHeaders(t, 4000)
	for range 2 {
		res, got := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {"k"}, "X-Long": {strings.Repeat("x", 4000)}}, "x")
		wantProblem(t, res, got, 400, "request_invalid", false)
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestOutcome_ATrailerThatIsLongerThanAnHTTP2UpstreamAcceptsLeavesTheOutcomeUnknown: the
// upstream has got the header and the body by then.
func TestOutcome_ATrailerThatIsLongerThanAnHTTP2UpstreamAcceptsLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	_, addr := acceptingHeaders(t, 1000)
	raw := "POST /v1/orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\nIdempotency-Key: k\r\nTrailer: X-Long\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Long: " + strings.Repeat("x", 1000) + "\r\n\r\n"
	for _, want := range []string{"HTTP/1.1 502 ", "HTTP/1.1 409 "} {
		if response := exchange(t, addr, raw, len(raw)); !strings.HasPrefix(response, want) {
			t.Errorf("%.200q, want %s", response, want)
		}
	}
}

// TestOutcome_AnHTTP2UpstreamThatEndsItsConnectionsMakesNoOutcomeUnknown: many requests
// share each connection, and some are about to be sent when it ends. Their key is
// released, so that a repeat runs.
func TestOutcome_AnHTTP2UpstreamThatEndsItsConnectionsMakesNoOutcomeUnknown(t *testing.T) {
	t.Parallel()
	const callers, each, length = 16, 30, 50
	var runs atomic.Int32
	up := upstream2(t, func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != length {
			t.Errorf("the upstream got %d bytes, %v", n, err)
		}
		if runs.Add(1)%20 == 0 {
			w.Header().Set("Connection", "close") // net/http sends a GOAWAY
		}
	})
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				key := fmt.Sprint(caller, "-", i)
				res, body := post(t, addr, key, strings.Repeat("x", length))
				for res.StatusCode == 503 {
					res, body = post(t, addr, key, strings.Repeat("x", length))
				}
				if res.StatusCode != 200 {
					t.Errorf("%d %.200s", res.StatusCode, body)
				}
			}
		})
	}
	all.Wait()
	if n := runs.Load(); n != callers*each {
		t.Errorf("%d runs of %d commands", n, callers*each)
	}
}

// TestUpstream_AnUnsafeRequestThatAnHTTP2UpstreamMayHaveProcessedIsSentOnce: it has no key,
// and no body either.
func TestUpstream_AnUnsafeRequestThatAnHTTP2UpstreamMayHaveProcessedIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method string
		code   uint32
		times  int32
	}{
		{"POST", protocolError, 1},
		{"DELETE", protocolError, 1},
		{"POST", refusedStream, 2},
		{"DELETE", refusedStream, 2},
	} {
		s := &framed{}
		s.answers = func(conn *framedConn, stream uint32, body string) {
			if s.requests.Load() == 1 {
				conn.reset(stream, c.code)
				return
			}
			conn.ok(stream, body)
		}
		addr := orders(t, s.start(t), onlyonce.Config{}, nil)
		res, body := send(t, c.method, "http://"+addr+"/v1/orders", nil, "")
		if want := map[int32]int{1: 502, 2: 200}[c.times]; res.StatusCode != want || s.requests.Load() != c.times {
			t.Errorf("%s, code %d: response %d %.200s, want %d; sent %d times, not %d", c.method, c.code, res.StatusCode, body, want, s.requests.Load(), c.times)
		}
	}
}
