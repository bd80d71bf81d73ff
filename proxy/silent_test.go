package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// A silenced relays connections to an upstream, until it is told to pass on nothing more
// for those that it has by then. They stay open, as if the upstream's machine had died.
type silenced struct {
	mu      sync.Mutex
	conns   int
	silence chan struct{} // closed for the connections up to now
}

func (s *silenced) start(t *testing.T, up *proxy.Upstream) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := up.URL.Host
	up.URL = parse(t, up.URL.Scheme+"://"+l.Addr().String())
	s.silence = make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			upstream, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			t.Cleanup(func() { upstream.Close() })
			s.mu.Lock()
			s.conns++
			silence := s.silence
			s.mu.Unlock()
			go s.pass(upstream, c, silence)
			go s.pass(c, upstream, silence)
		}
	}()
	t.Cleanup(func() { l.Close() })
}

func (s *silenced) pass(to, from net.Conn, silence chan struct{}) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		select {
		case <-silence:
			continue
		default:
		}
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			to.Close()
			return
		}
	}
}

func (s *silenced) silenceAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.silence)
	s.silence = make(chan struct{})
}

// TestUpstream_AnHTTP2ConnectionOnWhichNothingArrivesGetsNoMoreRequests: the machine of the
// upstream has died, say, and another one has taken over its address. Each further request
// over the connection would have an unknown outcome.
func TestUpstream_AnHTTP2ConnectionOnWhichNothingArrivesGetsNoMoreRequests(t *testing.T) {
	t.Parallel()
	respond := func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the upstream got a request by %s", r.Proto)
		}
		_, _ = io.WriteString(w, "ok")
	}
	overTLS := func(t testing.TB, h http.HandlerFunc) *proxy.Upstream {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		trust := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		trust.NextProtos = nil
		return &proxy.Upstream{URL: parse(t, s.URL), TLS: trust, HTTP2: true}
	}
	for name, c := range map[string]struct {
		start func(testing.TB, http.HandlerFunc) *proxy.Upstream
		keys  bool
		http2 bool
	}{
		"clear text":     {upstream2, true, true},
		"TLS":            {overTLS, true, true},
		"TLS, by choice": {overTLS, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := c.start(t, respond)
			up.HTTP2, up.KeepIdle, up.HeaderTimeout = c.http2, time.Minute, 2*time.Second
			s := &silenced{}
			s.start(t, up)
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			const enough = 10 // on a busy machine; else one before the silence and two after it
			wantOK := func(key string) {
				t.Helper()
				var res *http.Response
				var body string
				for i := range enough {
					name := ""
					if c.keys {
						name = fmt.Sprint(key, i)
					}
					if res, body = post(t, addr, name, "x"); res.StatusCode == 200 {
						break
					}
				}
				wantResponse(t, res, body, 200, "ok")
			}
			wantOK("before")
			s.silenceAll()
			wantOK("after")
		})
	}
}

// TestUpstream_RequestsOfASilentHTTP2ConnectionGoOn: its upstream is only slow.
func TestUpstream_RequestsOfASilentHTTP2ConnectionGoOn(t *testing.T) {
	t.Parallel()
	var first atomic.Value
	seen := make(chan struct{})
	another := sync.OnceFunc(func() { close(seen) })
	up := upstream2(t, func(w http.ResponseWriter, r *http.Request) {
		if !first.CompareAndSwap(nil, r.RemoteAddr) && first.Load() != r.RemoteAddr {
			another()
		}
		<-seen
		_, _ = io.WriteString(w, "ok")
	})
	up.HeaderTimeout = 20 * time.Second
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	var all sync.WaitGroup
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		all.Go(func() {
			res, body := post(t, addr, fmt.Sprint(i), strings.Repeat("x", 10))
			wantResponse(t, res, body, 200, "ok")
		})
		select {
		case <-seen:
			all.Wait()
			return
		case <-tick.C:
		}
	}
}

// TestUpstream_ARequestThatAnHTTP2UpstreamDoesNotReceiveEnds: once the buffers of a
// connection are full, net/http can't even cancel a request on it.
func TestUpstream_ARequestThatAnHTTP2UpstreamDoesNotReceiveEnds(t *testing.T) {
	t.Parallel()
	l := listen(t)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			const maxConcurrentStreams = 3
			(&framedConn{c}).frame(frameSettings, 0, 0, string(binary.BigEndian.AppendUint32([]byte{0, maxConcurrentStreams}, 1024)))
			go func() {
				<-end
				c.Close()
			}()
		}
	}()
	up := &proxy.Upstream{
		URL: parse(t, "http://"+l.Addr().String()), HTTP2: true, StallTimeout: 100 * time.Millisecond,
		HeaderTimeout: 3 * time.Second, // so that all requests get the same connection
	}
	s := proxy.Server(proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{HoldUnknown: true}), Idempotency: single},
	}, proxy.Config{}))
	s.ReadHeaderTimeout = 0 // so many long headers take longer on a busy machine
	addr := serveBy(t, s)
	const requests, length = 400, 28 << 10 // together more than the buffers of a connection
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() {
			r, _ := http.NewRequest("POST", "http://"+addr+"/v1/orders", nil)
			r.Header["X-Long"] = []string{strings.Repeat("x", length)}
			if i%2 == 0 {
				r.Header["Idempotency-Key"] = []string{fmt.Sprint(i)}
			}
			res, err := client.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			if res.Body.Close(); res.StatusCode < 500 {
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
	all.Wait()
}

// lockUp makes net/http of Go 1.26 hold a lock forever: the window of the stream becomes
// too large.
func lockUp(c *framedConn, stream uint32) { c.frame(frameWindow, 0, stream, "\x7f\xff\xff\xff") }

// wantNext sends requests, each with a new key unless keys is false, until the upstream
// responds to one.
func wantNext(t *testing.T, addr string, keys bool) {
	t.Helper()
	for began, i := time.Now(), 0; ; i++ {
		key := ""
		if keys {
			key = fmt.Sprintf("next-%d", i)
		}
		res, body := post(t, addr, key, "x")
		if res.StatusCode == 200 {
			wantResponse(t, res, body, 200, "1")
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("status %d, %s", res.StatusCode, body)
		}
	}
}

func TestUpstream_AnHTTP2ConnectionThatLocksUpIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", ""} {
		s := &framed{}
		s.answers = func(c *framedConn, stream uint32, body string) {
			if s.requests.Load() == 1 {
				lockUp(c, stream)
			}
			c.ok(stream, body)
		}
		up := s.start(t)
		up.DialTimeout, up.TLSTimeout, up.HeaderTimeout, up.StallTimeout = time.Second, time.Second, time.Second, time.Second
		addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
		res, body := post(t, addr, key, "x")
		wantProblem(t, res, body, 504, "upstream_failed", false)
		if key != "" {
			res, body = post(t, addr, key, "x")
			wantProblem(t, res, body, 409, "outcome_unknown", false)
		}
		wantNext(t, addr, key != "")
	}
}

// TestUpstream_AResponseOnAnHTTP2ConnectionThatLocksUpEnds: the response begins before.
func TestUpstream_AResponseOnAnHTTP2ConnectionThatLocksUpEnds(t *testing.T) {
	t.Parallel()
	s := &framed{}
	s.answers = func(c *framedConn, stream uint32, body string) {
		if s.requests.Load() > 1 {
			c.ok(stream, body)
			return
		}
		c.frame(frameHeaders, endHeaders, stream, "\x88") // :status 200
		c.frame(frameData, 0, stream, "part")
		lockUp(c, stream)
		c.frame(frameData, endStream, stream, "rest")
	}
	for _, key := range []string{"k", ""} {
		s.requests.Store(0)
		up := s.start(t)
		up.DialTimeout, up.TLSTimeout, up.HeaderTimeout, up.StallTimeout, up.MaxConns = time.Second, time.Second, 5*time.Second, time.Second, 1
		addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
		if key != "" {
			res, body := post(t, addr, key, "x")
			wantProblem(t, res, body, 504, "upstream_failed", false)
			res, body = post(t, addr, key, "x")
			wantProblem(t, res, body, 409, "outcome_unknown", false)
		} else { // it may last for as long as its client stays
			r, _ := http.NewRequest("POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
			res, err := client.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}
		wantNext(t, addr, key != "")
	}
}

// TestProxy_ClosesBesideAnHTTP2ConnectionThatLocksUp: so it does when it is reloaded.
func TestProxy_ClosesBesideAnHTTP2ConnectionThatLocksUp(t *testing.T) {
	t.Parallel()
	s := &framed{answers: func(c *framedConn, stream uint32, _ string) { lockUp(c, stream) }}
	up := s.start(t)
	up.HeaderTimeout, up.StallTimeout = 500*time.Millisecond, 500*time.Millisecond
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{})
	addr := serve(t, p)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		res, body := post(t, addr, "", "x")
		if res.StatusCode != 504 {
			t.Errorf("status %d, %s", res.StatusCode, body)
		}
	}()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		p.Close()
		select {
		case <-ended:
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}
