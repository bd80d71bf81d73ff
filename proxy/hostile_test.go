package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// late is an upstream that writes a second response on the connection of the first
// request, at the moment another request has come, and before it responds to that.
func late(t *testing.T) *proxy.Upstream {
	t.Helper()
	l := listen(t)
	var mu sync.Mutex
	var first net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					mu.Lock()
					if first == nil {
						first = c
					} else {
						io.WriteString(first, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
					}
					key := r.Header.Get("Idempotency-Key")
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nfor %s", 4+len(key), key)
					mu.Unlock()
				}
			}()
		}
	}()
	return &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: l.Addr().String()}, KeepIdle: time.Minute}
}

func TestListener_BytesAfterAResponseReachNoOtherTenant(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		up := late(t)
		up.OneRequestPerConn = fresh
		addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency = httponce.Config{Tenant: byTenant} })
		for i, tenant := range []string{"alice", "bob", "carol", "bob"} {
			key := fmt.Sprint(tenant, i)
			for range 2 {
				res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed(tenant, key), "x")
				wantResponse(t, res, body, 200, "for "+key)
			}
		}
	}
}

func TestListener_AConnectionIsUsedAgainForTheSameTenantOnly(t *testing.T) {
	for _, fresh := range []bool{false, true} {
		said := make(chan string, 1)
		up, _, conns := scripted(t, func(_ int, r *http.Request) (string, bool) {
			said <- fmt.Sprint(r.Close)
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", !r.Close
		})
		up.KeepIdle, up.MaxIdle, up.OneRequestPerConn = time.Minute, 2, fresh
		addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency = httponce.Config{Tenant: byTenant} })
		for i, c := range []struct {
			tenant string
			conns  int32
		}{{"alice", 1}, {"alice", 1}, {"bob", 2}, {"alice", 2}, {"bob", 2}, {"carol", 3}, {"carol", 3}, {"bob", 3}, {"alice", 4}} {
			send(t, "POST", "http://"+addr+"/v1/orders", keyed(c.tenant, fmt.Sprint(i)), "x")
			want := c.conns
			if fresh {
				want = int32(i + 1)
			}
			if closes := <-said; conns.Load() != want || closes != fmt.Sprint(fresh) {
				t.Errorf("request %d, of %s: %d connections, want %d; Connection: close is %s", i, c.tenant, conns.Load(), want, closes)
			}
		}
	}
}

// A corked connection writes nothing until it has all.
type corked struct {
	net.Conn
	on   bool
	held bytes.Buffer
}

func (c *corked) Write(p []byte) (int, error) {
	if c.on {
		return c.held.Write(p)
	}
	return c.Conn.Write(p)
}

func TestListener_BytesThatTLSReceivedAfterAResponseAreNotTheNext(t *testing.T) {
	ca := newAuthority(t)
	for _, all := range []bool{true, false} { // of the second response's record
		l := listen(t)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { c.Close() })
				go func() {
					below := &corked{Conn: c}
					secure := tls.Server(below, &tls.Config{Certificates: []tls.Certificate{ca.issue("upstream")}})
					for in := bufio.NewReader(secure); ; {
						r, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						io.Copy(io.Discard, r.Body)
						below.on = true
						io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
						io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
						below.on = false
						whole := below.held.Bytes()
						if !all {
							whole = whole[:len(whole)-10]
						}
						below.Conn.Write(whole)
						below.held.Reset()
					}
				}()
			}
		}()
		up := &proxy.Upstream{URL: &url.URL{Scheme: "https", Host: l.Addr().String()}, TLS: &tls.Config{RootCAs: ca.pool}, KeepIdle: time.Minute}
		addr := orders(t, up, onlyonce.Config{}, nil)
		for i := range 3 {
			res, body := post(t, addr, fmt.Sprint(i), "x")
			wantResponse(t, res, body, 200, "hi")
		}
	}
}

func TestListener_AnUpstreamCantSetTheProxysHeaders(t *testing.T) {
	const claims = "Idempotency-Replayed: true\r\nidempotency-protected: no\r\nIdempotency-Expires: x\r\nIdempotency-Replay: omitted\r\nIdempotency_Replayed: true\r\nIdempotency-Fence: 7\r\nIdempotency-Key: k\r\n"
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\n" + claims + "Content-Length: 2\r\n\r\nhi", false
	})
	overH2 := upstream2(t, func(w http.ResponseWriter, _ *http.Request) {
		for line := range strings.Lines(claims) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Set(name, value)
		}
	})
	for _, up := range []*proxy.Upstream{up, overH2} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", ""} {
			res, _ := post(t, addr, key, "x")
			for name := range res.Header {
				if folded := strings.ToLower(strings.ReplaceAll(name, "_", "-")); strings.HasPrefix(folded, "idempotency-") && folded != "idempotency-key" && (key == "" || folded != "idempotency-expires") {
					t.Errorf("HTTP/2 %v, key %q: %s: %s", up.HTTP2, key, name, res.Header[name])
				}
			}
			if res.StatusCode != 200 || len(res.Header["Idempotency-Key"]) != 1 || len(res.Header["Idempotency-Expires"]) > 1 || res.Header.Get("Idempotency-Expires") == "x" {
				t.Errorf("HTTP/2 %v, key %q: %d %v", up.HTTP2, key, res.StatusCode, res.Header)
			}
		}
	}
}

func TestListener_AnUpstreamCantSetTheProxysHeadersBeforeOrAfterItsResponseEither(t *testing.T) {
	const claims = "Idempotency-Replayed: true\r\nIdempotency_Replayed: true\r\nidempotency-protected: no\r\nX-Kept: yes\r\n"
	for _, announced := range []string{"", "Idempotency-Replayed, X-Kept"} {
		line := ""
		if announced != "" {
			line = "Trailer: " + announced + "\r\n"
		}
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 103 Early Hints\r\n" + claims + "\r\nHTTP/1.1 200 OK\r\n" + line + "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n" + claims + "\r\n", false
		})
		overH2 := upstream2(t, func(w http.ResponseWriter, _ *http.Request) {
			if announced != "" {
				w.Header().Set("Trailer", announced)
			}
			_, _ = io.WriteString(w, "hi")
			_ = http.NewResponseController(w).Flush()
			for claim := range strings.Lines(claims) {
				name, value, _ := strings.Cut(strings.TrimSpace(claim), ": ")
				if !strings.Contains(announced, name) {
					name = http.TrailerPrefix + name
				}
				w.Header().Set(name, value)
			}
		})
		for _, up := range []*proxy.Upstream{up, overH2} {
			addr := orders(t, up, onlyonce.Config{}, nil)
			for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
				response := exchange(t, addr, post11+key+"Connection: close\r\nContent-Length: 0\r\n\r\n", 10000)
				lower := strings.ToLower(strings.ReplaceAll(response, "_", "-"))
				if strings.Contains(lower, "idempotency-replayed: ") || strings.Contains(lower, "idempotency-protected: ") || !strings.Contains(response, "X-Kept: yes") {
					t.Errorf("HTTP/2 %v, announced %q, key %q: %q", up.HTTP2, announced, key, response)
				}
			}
		}
	}
}

// upstream2 is upstream for one that speaks HTTP/2.
func upstream2(t testing.TB, h http.HandlerFunc) *proxy.Upstream {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return &proxy.Upstream{URL: parse(t, s.URL), HTTP2: true}
}

// wantBrokenOff wants the response of an upstream to be broken off and its outcome to be unknown.
// It returns the address of the proxy.
func wantBrokenOff(t *testing.T, up *proxy.Upstream) (addr string) {
	t.Helper()
	addr = orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", nil)
	r.Header.Set("Idempotency-Key", "k")
	if res, err := client.RoundTrip(r); err == nil {
		_, err := io.Copy(io.Discard, res.Body)
		if res.Body.Close(); res.StatusCode == 200 && err == nil {
			t.Errorf("HTTP/2 %v: it came to an end", up.HTTP2)
		}
	}
	res, body := post(t, addr, "k", "")
	wantProblem(t, res, body, 409, "outcome_unknown", false)
	return addr
}

func TestListener_AResponseThatStallsEnds(t *testing.T) {
	stalls := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for _, up := range []*proxy.Upstream{upstream(t, stalls), upstream2(t, stalls)} {
		up.StallTimeout, up.BodyTimeout = 50*time.Millisecond, -1
		wantBrokenOff(t, up)
	}
}

func TestListener_ARequestThatIsNotTakenEnds(t *testing.T) {
	up := upstream2(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	up.StallTimeout, up.HeaderTimeout = 50*time.Millisecond, -1
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.MaxBody = 8 << 20 })
	for _, key := range []string{"k", ""} {
		res, body := post(t, addr, key, strings.Repeat("x", 8<<20))
		wantProblem(t, res, body, 504, "upstream_failed", false)
	}
}

func TestListener_ADrippingResponseEnds(t *testing.T) {
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		for i := range 1_000_000 { // each byte comes in time
			if _, err := io.WriteString(w, "x"); err != nil || r.Context().Err() != nil || r.Header.Get("Accept") != "" && i == 100 {
				return
			}
			http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(time.Millisecond):
			}
		}
	}
	for _, up := range []*proxy.Upstream{upstream(t, drip), upstream2(t, drip)} {
		up.BodyTimeout = 50 * time.Millisecond
		addr := wantBrokenOff(t, up)
		for i, events := range []string{"text/event-stream", "Text/Event-Stream", "text/event-stream;charset=utf-8"} { // RFC 9110, section 8.3.1
			res, body := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {strconv.Itoa(i)}, "Accept": {events}}, "x")
			if res.StatusCode != 200 || len(body) != 101 {
				t.Errorf("HTTP/2 %v: an event stream, %s: %d, %d bytes", up.HTTP2, events, res.StatusCode, len(body))
			}
		}
	}
}

// TestListener_AResponseThatBreaksOffIs502 holds both versions of HTTP to the same: if
// nothing of the response was sent, the client learns what happened.
func TestListener_AResponseThatBreaksOffIs502(t *testing.T) {
	breaks := map[string]http.HandlerFunc{
		"too short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "short")
		},
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"reset, of an unknown length": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"no content, and a body": func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil { // HTTP/1.1
				_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\nx")
				conn.Close()
				return
			}
			w.WriteHeader(http.StatusNoContent) // net/http's server sends no body with it over HTTP/2 either
			panic(http.ErrAbortHandler)
		},
	}
	for what, h := range breaks {
		for _, up := range []*proxy.Upstream{upstream(t, h), upstream2(t, h)} {
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			res, body := post(t, addr, "k", "x")
			wantProblem(t, res, body, 502, "upstream_failed", false)
			if res.Header.Get("Content-Length") == "10" {
				t.Errorf("%s, HTTP/2 %v: the response has the header of the one that broke off", what, up.HTTP2)
			}
			res, body = post(t, addr, "k", "x")
			wantProblem(t, res, body, 409, "outcome_unknown", false)
		}
	}
}

func TestListener_AClientThatLeavesALongResponseDoesNotMakeItsOutcomeUnknown(t *testing.T) {
	var runs atomic.Int32
	long := func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		_, _ = io.WriteString(w, strings.Repeat("x", 32<<20))
	}
	for _, up := range []*proxy.Upstream{upstream(t, long), upstream2(t, long)} {
		runs.Store(0)
		addr := orders(t, up, onlyonce.Config{HoldUnknown: true, Wait: time.Minute}, nil)
		c := dial(t, addr)
		_, _ = io.WriteString(c, post11+"Idempotency-Key: k\r\n\r\n")
		if _, err := io.ReadFull(c, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		res, body := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {"k"}}, "")
		if res.StatusCode != 200 || res.Header.Get("Idempotency-Replay") != "omitted" || runs.Load() != 1 {
			t.Errorf("HTTP/2 %v: a repeat gets %d %.80s after %d runs", up.HTTP2, res.StatusCode, body, runs.Load())
		}
	}
}

func TestListener_AResponseWithoutAContentTypeStaysSo(t *testing.T) {
	hints := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	}
	for _, up := range []*proxy.Upstream{upstream(t, hints), upstream2(t, hints)} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"", "k", "k"} {
			if res, body := post(t, addr, key, "x"); res.StatusCode != 200 || body != "<html>" || len(res.Header["Content-Type"]) > 0 {
				t.Errorf("HTTP/2 %v, key %q: %d %q with the content type %q", up.HTTP2, key, res.StatusCode, body, res.Header["Content-Type"])
			}
		}
	}
}

func TestListener_ATrailerThatMattersToFramingOrCredentialsIsDropped(t *testing.T) {
	for name, announced := range map[string]string{
		"not announced":       "",
		"announced":           "X-Sum, Location, Set-Cookie",
		"in another spelling": "X-Sum, set-cookie",
	} {
		line := ""
		if announced != "" {
			line = "Trailer: " + announced + "\r\n"
		}
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 200 OK\r\n" + line + "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Length: 7\r\nTransfer-Encoding: x\r\nConnection: x\r\nSet-Cookie: a=b\r\nAuthorization: x\r\nLocation: /\r\n\r\n", false
		})
		overH2 := upstream2(t, func(w http.ResponseWriter, _ *http.Request) {
			if announced != "" {
				w.Header().Set("Trailer", announced)
			}
			_, _ = io.WriteString(w, "ok")
			_ = http.NewResponseController(w).Flush()
			prefix := http.TrailerPrefix
			if announced != "" {
				prefix = ""
			}
			w.Header().Set(prefix+"X-Sum", "1")
			w.Header().Set(prefix+"Set-Cookie", "a=b")
			w.Header().Set(prefix+"Location", "/")
		})
		for _, up := range []*proxy.Upstream{up, overH2} {
			addr := orders(t, up, onlyonce.Config{}, nil)
			for _, key := range []string{"", "Idempotency-Key: k\r\n", "Idempotency-Key: k\r\n"} {
				got := exchange(t, addr, post11+"Content-Length: 0\r\nConnection: close\r\n"+key+"\r\n", 1000)
				if !strings.HasSuffix(got, "\r\n0\r\nX-Sum: 1\r\n\r\n") {
					t.Errorf("%s, HTTP/2 %v, %q: %q", name, up.HTTP2, key, got)
				}
			}
		}
	}
}

func TestListener_AFloodOfInterimResponsesEnds(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 10_000) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
		response := exchange(t, addr, post11+key+"Connection: close\r\n\r\n", 1000)
		if n := strings.Count(response, "HTTP/1.1 103"); n > 20 || !strings.Contains(response, "HTTP/1.1 502 ") || !strings.Contains(response, "upstream_failed") {
			t.Errorf("key %q: %d interim responses, %.300q", key, n, response)
		}
	}
}

func TestListener_AResponseWithALongHeaderIs502(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request) {
		for i := range 10 { // 80 KiB
			w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 8<<10))
		}
	}
	for _, up := range []*proxy.Upstream{upstream(t, long), upstream2(t, long)} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", ""} {
			res, body := post(t, addr, key, "x")
			wantProblem(t, res, body, 502, "upstream_failed", key != "")
		}
	}
}

func TestListener_ASwitchOfProtocolsThatNobodyAskedForIs502(t *testing.T) {
	old, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false
	})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols) // which net/http sends as an interim response
		io.WriteString(w, "hi")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	for _, up := range []*proxy.Upstream{old, {URL: parse(t, s.URL), HTTP2: true}} {
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
			response := exchange(t, addr, post11+key+"Connection: close\r\n\r\n", 1000)
			if !strings.HasPrefix(response, "HTTP/1.1 502 ") || !strings.Contains(response, "upstream_failed") {
				t.Errorf("HTTP/2 %t, key %q: %q", up.HTTP2, key, response)
			}
		}
	}
}

func TestListener_AStatusThatIsNoneIs502(t *testing.T) {
	for _, status := range []string{"000", "001", "099", "1000", "99", "-10", "+20", "20", "abc", "2 0"} {
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 " + status + " OK\r\nContent-Length: 2\r\n\r\nhi", false
		})
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, key := range []string{"k", ""} {
			res, body := post(t, addr, key, "x")
			wantProblem(t, res, body, 502, "upstream_failed", key != "")
		}
	}
}

// TestListener_AnAmbiguousLengthIs502: net/http passes on such lengths of an HTTP/2
// response, and whoever receives them over HTTP/1.1 could find another response in its
// body.
func TestListener_AnAmbiguousLengthIs502(t *testing.T) {
	t.Parallel()
	for _, lengths := range [][]string{{"1", "2"}, {"2", "2"}, {"+2"}, {"2, 2"}, {"0x2"}, {"-1"}, {""}, {"99999999999999999999"}} {
		s := &framed{}
		s.answers = func(c *framedConn, stream uint32, _ string) {
			fields := "\x88" // :status 200
			for _, length := range lengths {
				fields += "\x0f\x0d" + string(rune(len(length))) + length // content-length
			}
			c.frame(frameHeaders, endHeaders, stream, fields)
			c.frame(frameData, endStream, stream, "hi")
		}
		overHTTP1, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
			return "HTTP/1.1 200 OK\r\nContent-Length: " + strings.Join(lengths, "\r\nContent-Length: ") + "\r\n\r\nhi", false
		})
		for _, up := range []*proxy.Upstream{s.start(t), overHTTP1} {
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			for _, key := range []string{"k", ""} {
				if key == "" && !up.HTTP2 && lengths[0] == "2" && len(lengths) == 2 {
					continue // RFC 9112, section 6.3, allows to join equal ones, as net/http does
				}
				head := "POST /v1/orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n"
				if key != "" {
					head += "Idempotency-Key: " + key + "\r\n"
				}
				raw := head + "\r\nx"
				if response := exchange(t, addr, raw, len(raw)); !strings.HasPrefix(response, "HTTP/1.1 502 ") {
					t.Errorf("%q, HTTP/2 %v, key %q: %.200q", lengths, up.HTTP2, key, response)
				}
			}
		}
	}
}
