package proxy_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// rawUpstream is an upstream that hands its connections to serve, in turn.
func rawUpstream(t *testing.T, serve func(c net.Conn, in *bufio.Reader)) *proxy.Upstream {
	t.Helper()
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go serve(c, bufio.NewReader(c))
		}
	}()
	return &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String()), KeepIdle: time.Minute}
}

// readHead reads the head of a request, line by line, without the empty line.
func readHead(in *bufio.Reader) (lines []string) {
	for {
		line, err := in.ReadString('\n')
		if line = strings.TrimSuffix(line, "\r\n"); err != nil || line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

func TestPlain_AnUnsafeRequestIsNeverSentTwice(t *testing.T) {
	const first = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "TRACE", "LINK"} {
		for _, body := range []string{"", "x"} {
			up, requests, _ := scripted(t, func(n int, _ *http.Request) (string, bool) {
				return map[bool]string{true: first}[n == 1], n == 1 // it closes the idle connection just as the second request arrives
			})
			up.KeepIdle = time.Minute
			addr := orders(t, up, onlyonce.Config{}, nil)
			res, _ := send(t, method, "http://"+addr+"/x", nil, body)
			if res.StatusCode != 200 {
				t.Fatalf("%s: %d", method, res.StatusCode)
			}
			res, problem := send(t, method, "http://"+addr+"/x", nil, body)
			if wantProblem(t, res, problem, 502, "upstream_failed", false); requests.Load() != 2 {
				t.Errorf("%s %q was sent %d times", method, body, requests.Load()-1)
			}
		}
	}
}

func TestPlain_ASafeRequestIsSentAgainIfItsIdleConnectionCloses(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		up, requests, _ := scripted(t, func(n int, _ *http.Request) (string, bool) {
			return map[bool]string{true: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}[n != 2], n != 2
		})
		up.KeepIdle = time.Minute
		addr := orders(t, up, onlyonce.Config{}, nil)
		for range 2 {
			if res, body := send(t, method, "http://"+addr+"/x", nil, ""); res.StatusCode != 200 {
				t.Errorf("%s: %d %s", method, res.StatusCode, body)
			}
		}
		if requests.Load() != 3 {
			t.Errorf("%s: %d requests", method, requests.Load())
		}
	}
}

func TestPlain_ASafeRequestIsNotSentAgainAfterAnyResponse(t *testing.T) {
	for name, raw := range map[string]string{
		"half a head":    "HTTP/1.1 200 OK\r\nConte",
		"interim only":   "HTTP/1.1 103 Early Hints\r\n\r\n",
		"two lengths":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
		"other protocol": "HTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		up, requests, _ := scripted(t, func(n int, _ *http.Request) (string, bool) {
			return map[bool]string{true: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false: raw}[n == 1], n == 1
		})
		up.KeepIdle = time.Minute
		addr := orders(t, up, onlyonce.Config{}, nil)
		send(t, "GET", "http://"+addr+"/x", nil, "")
		res, body := send(t, "GET", "http://"+addr+"/x", nil, "")
		if wantProblem(t, res, body, 502, "upstream_failed", false); requests.Load() != 2 {
			t.Errorf("%s: %d requests", name, requests.Load())
		}
	}
}

// TestPlain_TheUpstreamGetsTheSameBytes compares a request's head with the one that net/http sends.
func TestPlain_TheUpstreamGetsTheSameBytes(t *testing.T) {
	got := make(chan []string, 1)
	up := rawUpstream(t, func(c net.Conn, in *bufio.Reader) {
		for {
			head := readHead(in)
			if head == nil {
				return
			}
			slices.Sort(head[1:])
			if i := slices.IndexFunc(head, func(s string) bool { return strings.HasPrefix(s, "Content-Length: ") }); i >= 0 && !strings.HasSuffix(head[i], " 0") {
				body := make([]byte, 1)
				io.ReadFull(in, body)
				head = append(head, string(body))
			}
			got <- head
			io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	const forwarded = "Forwarded: for=127.0.0.1;host=\"h\";proto=http\nHost: UP\n"
	const rest = "X-Forwarded-For: 127.0.0.1\nX-Forwarded-Host: h\nX-Forwarded-Proto: http"
	for _, c := range []struct{ request, want string }{
		{
			"GET /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nCookie: a\r\nX: 1\r\nX: 2\r\nConnection: keep-alive, x-y\r\nX-Y: 3\r\n\r\n",
			"GET /a%20b?x=1 HTTP/1.1\nCookie: a\n" + forwarded + rest + "\nX: 1\nX: 2",
		},
		{"DELETE /? HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "DELETE /? HTTP/1.1\n" + forwarded + rest},
		{"POST / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\nContent-Length: 0\n" + forwarded + rest},
		{"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nX-Tenant: t\r\nIdempotency-Fence: 9\r\nForwarded: for=evil\r\n\r\nz", "GET / HTTP/1.1\nContent-Length: 1\n" + forwarded + rest + "\nX-Tenant: t\nz"},
	} {
		// A TE that net/http does not pass on makes the proxy send the request by net/http.
		for _, byNetHTTP := range []string{"", "Te: gzip\r\n"} {
			head, body, _ := strings.Cut(c.request, "\r\n\r\n")
			exchange(t, addr, head+"\r\nConnection: close\r\n"+byNetHTTP+"\r\n"+body, 1)
			want := strings.ReplaceAll(c.want, "UP", up.URL.Host)
			if text := strings.Join(<-got, "\n"); text != want {
				t.Errorf("%q %q: the upstream got\n%s\nwant\n%s", c.request, byNetHTTP, text, want)
			}
		}
	}
}

func TestPlain_AResponseStreamsAsItComes(t *testing.T) {
	for name, head := range map[string]string{
		"chunked":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"with trailers": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length, Idempotency-Replayed\r\n\r\n",
	} {
		next := make(chan string)
		addr := orders(t, rawUpstream(t, func(c net.Conn, in *bufio.Reader) {
			readHead(in)
			for raw := range next {
				io.WriteString(c, raw)
			}
		}), onlyonce.Config{}, nil)
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/x", nil)
		go func() { next <- head }()
		res, err := client.RoundTrip(r) // the head comes before the body
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []string{"a", "bc"} {
			next <- string('0'+rune(len(piece))) + "\r\n" + piece + "\r\n"
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		next <- "0\r\nX-Sum: 3\r\nX-Unannounced: 1\r\nContent-Length: 9\r\nIdempotency-Replayed: true\r\n\r\n"
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
		res.Body.Close()
		if len(res.Trailer) != 2 || res.Trailer.Get("X-Sum") != "3" || res.Trailer.Get("X-Unannounced") != "1" {
			t.Errorf("%s: trailers %v", name, res.Trailer)
		}
		close(next)
	}
}

func TestPlain_AnEventStreamIsFlushedEvenIfItsLengthIsKnown(t *testing.T) {
	read := make(chan bool)
	addr := orders(t, rawUpstream(t, func(c net.Conn, in *bufio.Reader) {
		readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 4\r\n\r\n:\n")
		<-read
		io.WriteString(c, ":\n")
	}), onlyonce.Config{}, nil)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/x", nil)
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	close(read)
	if rest, err := io.ReadAll(res.Body); string(rest) != ":\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestPlain_TheUpstreamIsToldThatTheClientHasGone(t *testing.T) {
	for name, response := range map[string]string{
		"before the head": "",
		"in the body":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
	} {
		for _, method := range []string{"GET", "POST"} {
			received, gone := make(chan bool), make(chan bool)
			addr := orders(t, rawUpstream(t, func(c net.Conn, in *bufio.Reader) {
				readHead(in)
				io.WriteString(c, response)
				received <- true
				io.Copy(io.Discard, in)
				close(gone)
			}), onlyonce.Config{}, nil)
			c := dial(t, addr)
			io.WriteString(c, method+" /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")
			<-received
			c.Close()
			select {
			case <-gone:
			case <-time.After(patience):
				t.Fatalf("%s, %s: the upstream's connection stays open", method, name)
			}
		}
	}
}

// TestPlain_AResponseWithoutAKeyMayPause holds that Upstream.StallTimeout is for keyed
// requests: without a key, a poll that takes long, or a stream, may pause for any time.
func TestPlain_AResponseWithoutAKeyMayPause(t *testing.T) {
	stalled := make(chan bool)
	up := rawUpstream(t, func(c net.Conn, in *bufio.Reader) {
		head := readHead(in)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh")
		if slices.Contains(head, "Idempotency-Key: k") {
			io.Copy(io.Discard, in)
			return
		}
		<-stalled
		io.WriteString(c, "i")
	})
	up.StallTimeout = shortStall
	addr := orders(t, up, onlyonce.Config{}, nil)
	response := make(chan string)
	go func() {
		_, body := post(t, addr, "", "x")
		response <- body
	}()
	res, body := post(t, addr, "k", "x")
	wantProblem(t, res, body, 504, "upstream_failed", true)
	close(stalled)
	if got := <-response; got != "hi" {
		t.Errorf("%q", got)
	}
}

func TestPlain_NoConnectionIsSharedWithKeyedRequests(t *testing.T) {
	up, requests, conns := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true
	})
	up.KeepIdle = time.Minute
	for _, tenant := range []string{"unkeyed", "t"} {
		addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) {
			r.Idempotency.Tenant = func(*http.Request) string { return tenant }
		})
		conns.Store(0)
		for range 3 {
			post(t, addr, "", "x")
			post(t, addr, "k"+string('0'+rune(requests.Load())), "x")
		}
		if conns.Load() != 2 {
			t.Errorf("tenant %s: %d connections", tenant, conns.Load())
		}
	}
}
