package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestWire_TheUpstreamGetsOneKeyHoweverItIsWritten(t *testing.T) {
	keys := make(chan string, 1)
	fails := func(w http.ResponseWriter, r *http.Request) {
		keys <- fmt.Sprintf("%s %q", r.Header.Get("Idempotency-Attempt"), r.Header["Idempotency-Key"])
		w.WriteHeader(500)
	}
	h2 := httptest.NewUnstartedServer(http.HandlerFunc(fails))
	h2.Config.Protocols = new(http.Protocols)
	h2.Config.Protocols.SetUnencryptedHTTP2(true)
	h2.Start()
	defer h2.Close()
	for _, up := range []*proxy.Upstream{upstream(t, fails), {URL: parse(t, h2.URL), HTTP2: true}} {
		addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.KeyFormat.Chars = "pay-1, " })
		for i, key := range []string{`"pay-1"`, `pay-1`, `pay-1;x=1`, ` "pay-1" ;x`, `"pay-1";a="b";c=?1`} {
			exchange(t, addr, post11+"Idempotency-Key: "+key+"\r\nConnection: close\r\n\r\n", 1000)
			if strings.Contains(key, "\" ;") {
				continue // rejected: parameters follow at once
			}
			want := fmt.Sprintf(`%d ["pay-1"]`, i+1)
			if i > 3 {
				want = fmt.Sprintf(`%d ["pay-1"]`, i)
			}
			if got := <-keys; got != want {
				t.Errorf("HTTP/2 %v, %s is sent as %s, want %s", up.HTTP2, key, got, want)
			}
		}
		post(t, addr, `"pay, 1"`, "")
		if got := <-keys; got != `1 ["\"pay, 1\""]` {
			t.Errorf("a key that needs quotes is sent as %s", got)
		}
		strict := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.KeyFormat.Syntax = httponce.StringOnly })
		post(t, strict, `"pay-1";x`, "")
		if got := <-keys; got != `1 ["\"pay-1\""]` {
			t.Errorf("a key on a strict route is sent as %s", got)
		}
		pointed := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.KeyPointer = "/id" })
		for i, key := range []string{"", "pay-1", `"pay-1"`, "pay-1;x"} {
			post(t, pointed, key, `{"id":"pay-1"}`)
			if got := <-keys; got != fmt.Sprintf(`%d ["pay-1"]`, i+1) {
				t.Errorf("the body's key, with %q in the header, is sent as %s", key, got)
			}
		}
		unprotected := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) {
			r.Guard, r.Idempotency.RunUnprotected = onlyonce.New(broken{}, onlyonce.Config{}), true
		})
		post(t, unprotected, `"pay-1";x`, "")
		if got := <-keys; got != ` ["pay-1"]` {
			t.Errorf("a key without the store is sent as %s", got)
		}
	}
}

func TestWire_OnlyGRPCPassesAsGRPC(t *testing.T) {
	var runs atomic.Int32
	s := httptest.NewUnstartedServer(counter(&runs))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL)}, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.Tenant = func(*http.Request) string { return "" } })
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	for _, c := range []struct {
		types  []string
		passes bool
	}{
		{[]string{"application/grpc"}, true},
		{[]string{"application/grpc+proto"}, true},
		{[]string{"application/grpc;charset=utf-8"}, true},
		{[]string{"application/grpcfoo"}, false},
		{[]string{"application/grpc-web"}, false},
		{[]string{"application/grpc-web+proto"}, false},
		{[]string{"application/grpc x"}, false},
		{[]string{"Application/GRPC"}, false},
		{[]string{"application/grpc,application/json"}, false},
		{[]string{"application/grpc", "application/json"}, false},
		{nil, false},
	} {
		n := runs.Load()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
		r.Header = http.Header{"Content-Type": c.types, "Idempotency-Key": {"k"}}
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if want := map[bool]int{true: 201, false: 401}[c.passes]; res.StatusCode != want || (runs.Load() > n) != c.passes {
			t.Errorf("%q: status %d, %d runs", c.types, res.StatusCode, runs.Load()-n)
		}
	}
}

func TestWire_GRPCIsNotSentByHTTP1(t *testing.T) {
	ca := newAuthority(t)
	for _, secure := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if w.WriteHeader(400); r.Method != "PRI" { // as HTTP/2 begins
				t.Error("it came through")
			}
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		up := &proxy.Upstream{}
		if secure {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue("upstream")}}
			s.StartTLS()
			up.TLS = &tls.Config{RootCAs: ca.pool}
		} else {
			s.Start()
		}
		up.URL = parse(t, s.URL)
		addr := orders(t, up, onlyonce.Config{}, nil)
		h2 := clearHTTP2()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
		r.Header.Set("Content-Type", "application/grpc")
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != 502 {
			t.Errorf("TLS %v: status %d", secure, res.StatusCode)
		}
		h2.CloseIdleConnections()
		s.Close()
	}
}

func TestWire_HostsAreComparedAsHosts(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, counter(&runs))
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "Pay.example/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: httponce.Config{Tenant: httponce.SingleTenant, Required: true}},
		{Pattern: "[2001:DB8::1]/", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: httponce.Config{Tenant: httponce.SingleTenant, Required: true}},
		{Pattern: "/", Upstream: up},
	}, proxy.Config{}))
	for host, status := range map[string]int{
		"pay.example": 400, "PAY.example": 400, "pay.example.": 400, "pay.example:8080": 400, "PAY.EXAMPLE.:80": 400, "pay.example:": 400, "pay.example..": 400,
		"[2001:db8::1]": 400, "[2001:DB8::1]:80": 400, "[2001:db8::2]": 201, "other.example": 201, "xpay.example": 201, "": 201,
		"pay.example:80:90": 400, "%70ay.example": 400, "pay%2eexample": 400, "pay.example:x": 400, "[2001:db8::1": 400, "[2001:db8::1]x": 400, "2001:db8::1": 400, "[]": 400, "pay.example,x": 400, "u@pay.example": 400,
	} {
		response := exchange(t, addr, "POST /v1/orders HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n", 1000)
		if !strings.HasPrefix(response, fmt.Sprint("HTTP/1.1 ", status)) {
			t.Errorf("Host %q: %q", host, response)
		}
	}
}

func TestWire_ABodyInWhichTheKeyCantBeFoundIsRejected(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) { r.KeyPointer = "/id" })
	for _, body := range []string{"\ufeff" + `{"id":"k"}`, "{\x00\"\x00i\x00d\x00\"\x00:\x001\x00}\x00", `{"id":"k","n":NaN}`, strings.Repeat("[", 20_000), `{"id":1.5}`} {
		for _, key := range []string{"", "k"} {
			res, response := post(t, addr, key, body)
			wantProblem(t, res, response, 400, "idempotency_key_invalid", false)
		}
	}
	if runs.Load() > 0 {
		t.Errorf("%d runs", runs.Load())
	}
	res, response := post(t, addr, "", `{"other":1}`)
	wantResponse(t, res, response, 201, "run 1, attempt ,")
}

func TestWire_TheHostCountsWhereItSelectsTheSite(t *testing.T) {
	for _, kept := range []bool{false, true} {
		for _, skip := range []bool{false, true} {
			var runs atomic.Int32
			up := upstream(t, counter(&runs))
			up.KeepHost = kept
			addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.SkipFingerprint = skip })
			for host, status := range map[string]string{"a.example": "201", "A.Example": "201"} {
				if response := exchange(t, addr, "POST /v1/orders HTTP/1.1\r\nHost: "+host+"\r\nIdempotency-Key: k\r\nConnection: close\r\n\r\n", 1000); !strings.HasPrefix(response, "HTTP/1.1 "+status) {
					t.Errorf("%s: %q", host, response)
				}
			}
			want := map[bool]string{false: "HTTP/1.1 201", true: "HTTP/1.1 422"}[kept]
			if response := exchange(t, addr, "POST /v1/orders HTTP/1.1\r\nHost: b.example\r\nIdempotency-Key: k\r\nConnection: close\r\n\r\n", 1000); !strings.HasPrefix(response, want) || runs.Load() != 1 {
				t.Errorf("kept %v, %d runs: %q", kept, runs.Load(), response)
			}
		}
	}
}

func TestWire_ARequestWhoseKeyIsNotReadIsSentOnce(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		for _, method := range []string{"POST", "PATCH", "DELETE"} {
			up, requests, _ := scripted(t, func(n int, r *http.Request) (string, bool) {
				if len(r.Header[name]) != 1 && r.Method != "GET" {
					t.Errorf("the upstream got %v", r.Header)
				}
				return map[bool]string{true: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}[n == 1], n == 1
			})
			up.KeepIdle = time.Minute
			addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.Header = "X-Order" })
			if res, _ := send(t, "GET", "http://"+addr+"/v1/orders", nil, ""); res.StatusCode != 200 { // leaves an idle connection
				t.Fatalf("status %d", res.StatusCode)
			}
			res, body := send(t, method, "http://"+addr+"/v1/orders", http.Header{name: {"k"}}, "")
			wantProblem(t, res, body, 502, "upstream_failed", false)
			if n := requests.Load(); n != 2 {
				t.Errorf("%s with %s was sent %d times", method, name, n-1)
			}
		}
	}
}

// TestWire_AKeyedRequestThatOffersAnotherProtocolRuns: Java's HttpClient offers h2c with
// the first request of a connection. net/http sends no such request over HTTP/2.
func TestWire_AKeyedRequestThatOffersAnotherProtocolRuns(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{"HTTP/1.1": upstream, "HTTP/2": upstream2} {
		var runs atomic.Int32
		addr := orders(t, start(t, counter(&runs)), onlyonce.Config{HoldUnknown: true}, nil)
		for _, protocol := range []string{"h2c", "websocket"} {
			h := http.Header{"Idempotency-Key": {protocol}, "Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {protocol}, "Http2-Settings": {"AAEAAEAAAAIAAAAB"}}
			if res, body := send(t, "POST", "http://"+addr+"/v1/orders", h, "x"); res.StatusCode != 201 {
				t.Errorf("%s, %s is offered: %d %s", name, protocol, res.StatusCode, body)
			}
		}
	}
}
