package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestPassThrough_AStreamWithoutAKeyPassesAsItComes(t *testing.T) {
	next := make(chan bool)
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			next <- line == "more\n"
		}
		for i := range 3 {
			fmt.Fprintln(w, i)
			http.NewResponseController(w).Flush()
			<-next
		}
	}), onlyonce.Config{}, nil)
	for _, path := range []string{"/v1/orders", "/other"} {
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+path, in)
		go func() {
			for range 3 {
				io.WriteString(out, "more\n")
				if !<-next {
					t.Error("the upstream got something else")
				}
			}
			out.Close()
		}()
		res, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response := bufio.NewReader(res.Body)
		for i := range 3 {
			if line, err := response.ReadString('\n'); line != fmt.Sprintln(i) {
				t.Fatalf("%q %v", line, err)
			}
			next <- true
		}
		res.Body.Close()
	}
}

func TestPassThrough_ABodyIsNotRequestedBeforeTheRequestIsAccepted(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.MaxBody = 10 })
	for head, accepted := range map[string]bool{
		post11 + "Idempotency-Key: k\r\nContent-Length: 1\r\n":  true,
		post11 + "Content-Length: 1\r\n":                        true,
		post11 + "Idempotency-Key: ,\r\nContent-Length: 1\r\n":  false,
		post11 + "Idempotency-Key: k\r\nContent-Length: 11\r\n": false,
		post11 + "Connection: cookie\r\nContent-Length: 1\r\n":  false,
	} {
		c := dial(t, addr)
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, head+"Expect: 100-continue\r\n\r\n")
		in := bufio.NewReader(c)
		status, err := in.ReadString('\n')
		if strings.HasPrefix(status, "HTTP/1.1 100 ") != accepted {
			t.Errorf("%q: %q %v", head, status, err)
		}
		if accepted {
			in.ReadString('\n')
			io.WriteString(c, "x")
			res, err := http.ReadResponse(in, nil)
			for err == nil && res.StatusCode == 100 { // the upstream's own
				res, err = http.ReadResponse(in, nil)
			}
			if err != nil || res.StatusCode != 200 {
				t.Errorf("%q: %v %v", head, res, err)
			}
		}
		c.Close()
	}
}

func TestPassThrough_ALargeBodyPassesBothWays(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		all, _ := io.ReadAll(r.Body) // net/http does not forward bytes that arrive after the response has begun
		w.Write(all)
	}), onlyonce.Config{}, nil)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	res, body := send(t, "POST", "http://"+addr+"/v1/orders", nil, string(large))
	if res.StatusCode != 200 || sha256.Sum256([]byte(body)) != sha256.Sum256(large) {
		t.Fatalf("%d, %d bytes", res.StatusCode, len(body))
	}
}

func TestPassThrough_ATruncatedResponseIsAnErrorForTheClient(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false
	})
	reported := make(chan error, 1)
	addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{OnError: func(_ *http.Request, err error) { reported <- err }}))
	response := exchange(t, addr, get11+"\r\n", 1000)
	if err := <-reported; strings.Contains(response, "\r\n\r\n0123456789") || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("%q, %v", response, err)
	}
}

func TestPassThrough_InterimResponsesAndTrailersPass(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "hi")
		w.Header().Set("X-Sum", "1")
	}), onlyonce.Config{}, nil)
	hints := ""
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = fmt.Sprint(code, h.Get("Link"))
		return nil
	}})
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://"+addr+"/", nil)
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if string(body) != "hi" || hints != "103</a.css>; rel=preload" || res.Trailer.Get("X-Sum") != "1" {
		t.Errorf("%q, %q, %v", body, hints, res.Trailer)
	}
}

// switching is an upstream that changes to the protocol that is asked for, and then
// repeats every line.
func switching(t *testing.T, seen *atomic.Int32) *proxy.Upstream {
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "no upgrade")
			return
		}
		seen.Add(1)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		for rw.Flush() == nil {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			rw.WriteString(line)
		}
	})
}

func TestPassThrough_AWebSocketPasses(t *testing.T) {
	var seen atomic.Int32
	addr := orders(t, switching(t, &seen), onlyonce.Config{}, nil)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	// The first request shows that the connection may have been used before.
	io.WriteString(c, get11+"\r\n")
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	io.WriteString(c, get11+"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	if res, err = http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}
	for _, line := range []string{"\x81\x00\x00 not HTTP\n", "POST / HTTP/1.1\n", "\r\n", "x\x00\n"} {
		io.WriteString(c, line)
		if got, err := in.ReadString('\n'); got != line {
			t.Fatalf("%q comes back as %q, %v", line, got, err)
		}
	}
}

func TestPassThrough_NoOtherUpgradePasses(t *testing.T) {
	var seen atomic.Int32
	up := switching(t, &seen)
	plain := orders(t, up, onlyonce.Config{}, nil)
	without := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, NoUpgrade: true}}, proxy.Config{}))
	websocket := "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	for raw, addr := range map[string]string{
		get11 + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n": plain,
		get11 + "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n":                                                  plain,
		get11 + "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n":                                       plain,
		get11 + "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n":                                                         plain,
		post11 + websocket: plain,
		post11 + "Idempotency-Key: k\r\n" + websocket:       plain,
		"POST / HTTP/1.1\r\nHost: h\r\n" + websocket:        plain,
		get11 + websocket + "Content-Length: 0\r\nX: y\r\n": without,
	} {
		if response := exchange(t, addr, raw+"\r\n"+get11+"Connection: close\r\n\r\n", len(raw)); strings.Count(response, "no upgrade") != 2 {
			t.Errorf("%q: %q", raw, response)
		}
	}
	if seen.Load() > 0 {
		t.Errorf("the upstream was asked %d times", seen.Load())
	}
}

// clearHTTP2 speaks HTTP/2 in clear text.
func clearHTTP2() *http.Transport {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: p}
}

func TestPassThrough_GRPCPassesWithItsTrailersAndWhileBothSidesTalk(t *testing.T) {
	var runs atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		http.NewResponseController(w).Flush()
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				break
			}
			fmt.Fprintf(w, "%s %s %s;", b, r.Proto, r.Header.Get("Te"))
			http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL)}, onlyonce.Config{}, nil)
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	for range 2 { // a key changes nothing
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", in)
		r.Header = http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}, "Idempotency-Key": {"k"}}
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response := bufio.NewReader(res.Body)
		for _, word := range []string{"a", "b"} {
			io.WriteString(out, word)
			if got, err := response.ReadString(';'); got != word+" HTTP/2.0 trailers;" {
				t.Fatal(got, err)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(response); len(rest) > 0 || err != nil || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%q %v %v", rest, err, res.Trailer)
		}
		res.Body.Close()
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestPassThrough_TheFormOfGRPCIsNoWayRoundARequiredKey(t *testing.T) {
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") }), onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.Required = true })
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
	r.Header.Set("Content-Type", "application/grpc")
	res, err := h2.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestPassThrough_HTTP2ClientsHaveTheSameProtection(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	for range 2 {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
		r.Header.Set("Idempotency-Key", "k")
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		wantResponse(t, res, string(body), 201, "run 1, attempt 1, x")
	}
}

func TestPassThrough_AnUpstreamThatSpeaksHTTP2(t *testing.T) {
	var runs atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch n := runs.Add(1); {
		case string(body) == "abort" && n == 1:
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprintf(w, "%s, attempt %s", r.Proto, r.Header.Get("Idempotency-Attempt"))
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	up := &proxy.Upstream{URL: parse(t, s.URL), HTTP2: true}
	addr := orders(t, up, onlyonce.Config{}, nil)
	res, body := post(t, addr, "k", "abort")
	wantProblem(t, res, body, 502, "upstream_failed", true)
	res, body = post(t, addr, "k", "abort")
	wantResponse(t, res, body, 200, "HTTP/2.0, attempt 2")
	res, body = post(t, addr, "empty", "")
	wantResponse(t, res, body, 200, "HTTP/2.0, attempt 1")
	s.Close()
	addr = orders(t, up, onlyonce.Config{}, nil) // which has no connection that is about to end
	res, body = post(t, addr, "gone", "x")
	wantProblem(t, res, body, 503, "upstream_unreachable", true)
}

func TestPassThrough_NoTransportSendsAKeyedRequestAgain(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 2 { // on a connection that was used before
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		}
	}))
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL), TLS: &tls.Config{RootCAs: pool}, KeepIdle: time.Minute}, onlyonce.Config{}, nil)
	res, body := post(t, addr, "1", "")
	wantResponse(t, res, body, 200, "")
	res, body = post(t, addr, "2", "")
	wantProblem(t, res, body, 502, "upstream_failed", true)
	if requests.Load() != 2 {
		t.Errorf("%d requests", requests.Load())
	}
}

// TestPassThrough_AnUpstreamSetForHTTP2GetsNothingOverHTTP1: net/http would send keyed
// requests of different tenants over one connection then.
func TestPassThrough_AnUpstreamSetForHTTP2GetsNothingOverHTTP1(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewUnstartedServer(counter(&requests))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are broken off
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL), TLS: &tls.Config{RootCAs: pool}, HTTP2: true, KeepIdle: time.Minute}, onlyonce.Config{HoldUnknown: true}, nil)
	for range 2 {
		res, body := post(t, addr, "k", "x")
		wantProblem(t, res, body, 503, "upstream_unreachable", true)
	}
	if res, body := post(t, addr, "", "x"); res.StatusCode != 502 {
		t.Errorf("without a key: %d %s", res.StatusCode, body)
	}
	if requests.Load() != 0 {
		t.Errorf("%d requests", requests.Load())
	}
}

func TestPassThrough_ATypeThatTheServerDoesNotNameIsNotGuessed(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "<html><script>1</script>")
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for _, h := range []http.Header{nil, {"Idempotency-Key": {"k"}}, {"Idempotency-Key": {"k"}}} {
		res, body := send(t, "POST", "http://"+addr+"/v1/orders", h, "x")
		if kind, named := res.Header["Content-Type"]; named || !strings.Contains(body, "<html>") {
			t.Errorf("%v: %q is %q", h, body, kind)
		}
	}
}

func TestPassThrough_WithoutAServerTheResponseSaysThatNothingWasDone(t *testing.T) {
	u := upstream(t, func(http.ResponseWriter, *http.Request) {})
	u.URL.Host = nowhere
	res, body := send(t, "GET", "http://"+orders(t, u, onlyonce.Config{}, nil)+"/v1/orders", nil, "")
	wantProblem(t, res, body, 503, "upstream_unreachable", true)
}

func TestPassThrough_HeadersOfAResponseAreAddedAndDropped(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "theirs")
		w.Header().Set("X-Set", "theirs")
		w.Header().Set("X-Hop", "theirs")
		w.Header().Set("Connection", "x-hop")
		w.Header()["X-Two"] = []string{"1", "2"}
	}), onlyonce.Config{}, func(r *proxy.Route) {
		r.SetResponseHeader = http.Header{"X-Set": {"ours"}}
		r.DropResponseHeader = []string{"server"}
	})
	for _, key := range []string{"k", "k", ""} {
		res, _ := post(t, addr, key, "x")
		if res.Header.Get("Server") != "" || res.Header.Get("X-Set") != "ours" || res.Header.Get("X-Hop") != "" || strings.Join(res.Header["X-Two"], " ") != "1 2" {
			t.Errorf("key %q: %v", key, res.Header)
		}
	}
}

func TestPassThrough_HEADPasses(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "7") }), onlyonce.Config{}, nil)
	if res, body := send(t, "HEAD", "http://"+addr+"/", nil, ""); res.ContentLength != 7 || body != "" {
		t.Errorf("%d %q", res.ContentLength, body)
	}
}

func TestPassThrough_AClientThatHangsUpCostsNoOtherItsResponse(t *testing.T) {
	h := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) {})}}, proxy.Config{})
	over := make(chan struct{})
	var hangUp, stay sync.WaitGroup
	for range 8 {
		hangUp.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(time.Millisecond))
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
				cancel()
			}
		})
		stay.Go(func() {
			for range 400 {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)); w.Code != http.StatusOK {
					t.Errorf("somebody else got %d: %s", w.Code, w.Body)
				}
			}
		})
	}
	stay.Wait()
	close(over)
	hangUp.Wait()
}
