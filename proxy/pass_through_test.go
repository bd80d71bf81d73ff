package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
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

func TestPassThrough_AResponseThatBreaksOffEndsWithAResetOverHTTP10(t *testing.T) {
	for name, header := range map[string]string{"with a key": "Idempotency-Key: k\r\n", "without a key": "", "without the proxy's own client": "Te: trailers\r\n"} {
		t.Run(name, func(t *testing.T) {
			up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
				return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlong\r\n4\r\nlong\r\n", false
			})
			addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.MaxResponse = 6 })
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "POST /v1/orders HTTP/1.0\r\nHost: a\r\nContent-Length: 1\r\n"+header+"\r\nx")
			if response, err := io.ReadAll(conn); err == nil {
				t.Errorf("the client takes this for the whole: %q", response)
			}
		})
	}
}

func TestPassThrough_AClientOfHTTP10GetsNoInterimResponse(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hi")
	})
	addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{}))
	for _, header := range []string{"", "Te: trailers\r\n"} { // with and without the proxy's own client
		if response := exchange(t, addr, "GET / HTTP/1.0\r\n"+header+"\r\n", 1000); !strings.HasPrefix(response, "HTTP/1.0 200 OK\r\n") || !strings.HasSuffix(response, "hi") {
			t.Errorf("%q: %q", header, response)
		}
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
