package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestServer_OfWhatAnHTTP2ClientSendsUnreadLittleIsKept(t *testing.T) {
	h2 := proxy.Server(http.NotFoundHandler()).HTTP2
	if h2.MaxReceiveBufferPerStream > 64<<10 {
		t.Errorf("%+v", h2)
	}
}

// TestServer_BodiesThatNobodyReadsHoldUpNoOthersOfTheirConnection is about a gateway that sends
// the requests of many clients over one connection.
func TestServer_BodiesThatNobodyReadsHoldUpNoOthersOfTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const unread = 249 // of the 250 requests that a connection carries
		var running atomic.Int32
		client := overHTTP2(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/read" {
				_, _ = io.Copy(io.Discard, r.Body)
				return
			}
			running.Add(1)
			<-r.Context().Done()
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		postTo := func(path string) error {
			r, _ := http.NewRequestWithContext(ctx, "POST", "http://proxy"+path, bytes.NewReader(make([]byte, 128<<10)))
			res, err := client.Do(r)
			if err == nil {
				res.Body.Close()
			}
			return err
		}
		if err := postTo("/read"); err != nil { // the client learns how many requests it may send
			t.Fatal(err)
		}
		for range unread {
			go postTo("/unread")
		}
		if synctest.Wait(); running.Load() != unread {
			t.Fatalf("%d requests are running", running.Load())
		}
		ended := make(chan error, 1)
		go func() { ended <- postTo("/read") }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("its body does not arrive")
		}
	})
}

// A pipe is a listener of one connection in memory.
type pipe struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error   { close(p.closed); return nil }
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{} }

// overHTTP2 returns a client of h that keeps 64 KiB of a response that nobody reads.
func overHTTP2(t *testing.T, h http.Handler) *http.Client {
	dial := inMemory(t, h)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// inMemory serves h until the test ends. It returns a function that connects to it, by connections
// that keep nothing.
func inMemory(t *testing.T, h http.Handler) (dial func() net.Conn) {
	l := &pipe{make(chan net.Conn), make(chan struct{})}
	s := proxy.Server(h)
	go s.Serve(proxy.Listen(l, nil))
	t.Cleanup(func() { s.Close() })
	return func() net.Conn {
		ours, theirs := net.Pipe()
		l.conns <- theirs
		return ours
	}
}

func TestServer_ByHTTP2AResponseThatItsClientDoesNotReadIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		client := overHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/short" {
				return
			}
			_, err := w.Write(make([]byte, 1<<20))
			ended <- err
		}))
		res, err := client.Get("http://proxy/long")
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatalf("all was taken: %v", <-ended)
		}
		for range 10 { // beside it, the connection has its responses
			short, err := client.Get("http://proxy/short")
			if err != nil {
				t.Fatal(err)
			}
			short.Body.Close()
			time.Sleep(10 * time.Second)
		}
		select {
		case err := <-ended:
			if err == nil {
				t.Error("all was written")
			}
		default:
			t.Error("it is still being written")
		}
		if n, err := io.Copy(io.Discard, res.Body); err == nil || n >= 1<<20 {
			t.Errorf("the client has %d bytes: %v", n, err)
		}
		res.Body.Close()
	})
}

func TestServer_ByHTTP2AResponseThatPausesGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := overHTTP2(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 5 {
				io.WriteString(w, "event\n")
				http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
			w.Write(bytes.Repeat([]byte("x"), 1<<20))
		}))
		res, err := client.Get("http://proxy/")
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(res.Body); err != nil || len(b) != 5*len("event\n")+1<<20 {
			t.Errorf("%d bytes: %v", len(b), err)
		}
		res.Body.Close()
	})
}

func TestServer_ADeadlineThatTheHandlerHasSetHolds(t *testing.T) {
	for name, c := range map[string]struct {
		set  []time.Duration // from the beginning; 0: none
		want time.Duration
	}{
		"the handler's is the earlier one": {[]time.Duration{30 * time.Second}, 30 * time.Second},
		"the handler's is the later one":   {[]time.Duration{time.Hour}, 90 * time.Second},
		"the handler has removed it":       {[]time.Duration{30 * time.Second, 0}, 90 * time.Second},
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprint(name, ", HTTP/", version), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began, ended := time.Now(), make(chan time.Duration, 1)
					h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						response := http.NewResponseController(w)
						_, _ = w.Write([]byte("x"))
						for _, d := range c.set {
							var at time.Time
							if d > 0 {
								at = began.Add(d)
							}
							if err := response.SetWriteDeadline(at); err != nil {
								t.Error(err)
							}
						}
						for {
							if _, err := w.Write(make([]byte, 16<<10)); err != nil {
								ended <- time.Since(began)
								return
							}
						}
					})
					if version == 2 {
						res, err := overHTTP2(t, h).Get("http://proxy/")
						if err != nil {
							t.Fatal(err)
						}
						defer res.Body.Close()
					} else {
						c := inMemory(t, h)()
						defer c.Close()
						_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
						if _, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200"))); err != nil {
							t.Fatal(err)
						}
					}
					if took := <-ended; took != c.want {
						t.Errorf("it ended after %v, want %v", took, c.want)
					}
				})
			})
		}
	}
}

// httponce ends a response by its deadline, again and again while others wait.
func TestServer_ByHTTP2AConnectionThatReadsNothingIsClosedForAResponseThatIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writers, ended := make(chan http.ResponseWriter, 1), make(chan error, 1)
		c := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			writers <- w
			_, err := w.Write(make([]byte, 64<<10))
			ended <- err
		}))()
		defer c.Close()
		const window = 4
		frames := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2Frame(http2Settings, 0, 0, []byte{0, window, 0x7f, 0xff, 0xff, 0xff})...)
		fields := http2Fields(":method", "GET", ":scheme", "http", ":authority", "a.example", ":path", "/")
		if _, err := c.Write(append(frames, http2Frame(http2Headers, http2EndStream|http2EndHeaders, 1, fields)...)); err != nil {
			t.Fatal(err)
		}
		response := http.NewResponseController(<-writers)
		for end := time.Now().Add(5 * time.Second); len(ended) == 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it is still being written")
			}
			if err := response.SetWriteDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if <-ended == nil {
			t.Error("all was written")
		}
	})
}
