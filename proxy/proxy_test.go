package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// upstream starts a server, and returns where it is.
func upstream(t testing.TB, h http.HandlerFunc) *proxy.Upstream {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &proxy.Upstream{URL: parse(t, s.URL)}
}

func parse(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// counter counts its requests, and tells the number, the attempt and the body.
func counter(runs *atomic.Int32) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(201)
		fmt.Fprintf(w, "run %d, attempt %s, %s", runs.Add(1), r.Header.Get("Idempotency-Attempt"), body)
	}
}

// scripted starts an upstream that responds to the nth request, counted from 1, with
// the bytes that response returns, and closes the connection if they end with
// nothing else but the end.
func scripted(t testing.TB, response func(n int, r *http.Request) (raw string, keep bool)) (up *proxy.Upstream, requests, conns *atomic.Int32) {
	t.Helper()
	l := listen(t)
	requests, conns = new(atomic.Int32), new(atomic.Int32)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			t.Cleanup(func() { c.Close() })
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					raw, keep := response(int(requests.Add(1)), r)
					if io.WriteString(c, raw); !keep {
						return
					}
				}
			}()
		}
	}()
	return &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: l.Addr().String()}}, requests, conns
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// nowhere is an address that nobody listens on, and that nobody is given.
const nowhere = "127.0.0.1:1"

// patience is how long tests wait for an event that is sure to come.
const patience = time.Minute

// shortStall is the StallTimeout of an upstream that stalls. It is long enough to begin to write
// a request, also while others have the processors; otherwise nothing would have been sent.
const shortStall = time.Second

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// relay copies between a connection and one to addr until either ends. If it says
// so, it sends a response of its own behind the first.
func relay(c net.Conn, addr string, adds bool, said chan bool) {
	defer c.Close()
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		defer c.Close()
		b := make([]byte, 1024)
		for {
			n, err := to.Read(b)
			if _, failed := c.Write(b[:n]); err != nil || failed != nil {
				return
			}
			if adds {
				adds = false
				go func() {
					<-time.After(10 * time.Millisecond) // behind the response, not with it
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
					said <- true
				}()
			}
		}
	}()
	io.Copy(to, c)
}

func tlsConfig() *tls.Config { return &tls.Config{} }

// serve starts a proxy as it is to be served, and returns its address.
func serve(t testing.TB, p http.Handler) string {
	t.Helper()
	return serveBy(t, proxy.Server(p))
}

func serveBy(t testing.TB, s *http.Server) string {
	t.Helper()
	l := listen(t)
	t.Cleanup(func() { s.Close() })
	go s.Serve(proxy.Listen(l, nil))
	return l.Addr().String()
}

// orders serves a proxy that protects POST /v1/orders, passes the rest, and is
// otherwise as change makes its routes.
func orders(t testing.TB, up *proxy.Upstream, guard onlyonce.Config, change func(*proxy.Route)) string {
	t.Helper()
	r := proxy.Route{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(guard), Idempotency: single}
	if change != nil {
		change(&r)
	}
	return serve(t, proxy.New([]proxy.Route{r, {Pattern: "/", Upstream: up}}, proxy.Config{Protected: []string{"X-Tenant"}}))
}

func newGuard(cfg onlyonce.Config) *onlyonce.Guard {
	return onlyonce.New(memstore.New(memstore.Config{}), cfg)
}

var single = httponce.Config{Tenant: httponce.SingleTenant}

// post sends a request to /v1/orders and returns its response and body.
func post(t testing.TB, addr, key, body string) (*http.Response, string) {
	t.Helper()
	h := http.Header{}
	if key != "" {
		h.Set("Idempotency-Key", key)
	}
	return send(t, "POST", "http://"+addr+"/v1/orders", h, body)
}

func send(t testing.TB, method, url string, h http.Header, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header = h; h == nil {
		r.Header = http.Header{}
	}
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	response, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(response)
}

// client has a connection for each request.
var client = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// wantResponse fails unless the response has that status and body, or a body of which
// it is a part.
func wantResponse(t testing.TB, res *http.Response, body string, status int, want string) {
	t.Helper()
	if res.StatusCode != status || !strings.Contains(body, want) {
		t.Fatalf("response %d %q %v, want %d %q", res.StatusCode, body, res.Header, status, want)
	}
}

func wantProblem(t testing.TB, res *http.Response, body string, status int, code string, retryable bool) {
	t.Helper()
	if res.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("content type %q", res.Header.Get("Content-Type"))
	}
	wantResponse(t, res, body, status, fmt.Sprintf(`"code":%q,"retryable":%v`, code, retryable))
}
