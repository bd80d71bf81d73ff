package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// The tests named TestSecurity_… each hold an attack of docs/security.md. What must be
// rejected is sent as raw bytes.

func byTenant(r *http.Request) string { return r.Header.Get("X-Tenant") }

func keyed(tenant, key string) http.Header {
	return http.Header{"X-Tenant": {tenant}, "Idempotency-Key": {key}}
}

func TestSecurity_TenantsAreApart(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency = httponce.Config{Tenant: byTenant, KeyFormat: httponce.KeyFormat{Chars: "abc|"}}
	})
	for i, id := range [][2]string{{"a", "b"}, {"b", "a"}, {"a|b", "c"}, {"a", "b|c"}} {
		res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed(id[0], id[1]), "same")
		wantAnswer(t, res, body, 201, fmt.Sprintf("run %d,", i+1))
	}
	res, body := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {"a"}}, "same")
	wantProblem(t, res, body, 401, "tenant_missing", false)
	answer := exchange(t, addr, post11+"X_Tenant: a\r\nIdempotency-Key: b\r\nConnection: close\r\nContent-Length: 4\r\n\r\nsame", 1000)
	if !strings.HasPrefix(answer, "HTTP/1.1 401 ") {
		t.Error(answer)
	}
}

func TestSecurity_CredentialsAreNotReplayed(t *testing.T) {
	secrets := []string{"Set-Cookie", "Www-Authenticate", "Proxy-Authenticate", "Authentication-Info", "X-Csrf-Token", "Authorization", "Date", "Age", "Traceparent"}
	store := newStore()
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range secrets {
			w.Header().Set(name, "secret of theirs")
		}
		w.Header().Set("Location", "/v1/orders/1")
	}), onlyonce.Config{}, func(r *proxy.Route) { r.Guard = onlyonce.New(store, onlyonce.Config{}) })
	first, _ := post(t, addr, "k", "x")
	again, _ := post(t, addr, "k", "x")
	for _, name := range secrets {
		if strings.Contains(again.Header.Get(name), "secret") {
			t.Errorf("%s is replayed", name)
		}
	}
	if first.Header.Get("Set-Cookie") == "" || first.Header.Get("Proxy-Authenticate") != "" || again.Header.Get("Location") == "" {
		t.Errorf("first %v, again %v", first.Header, again.Header)
	}
	for r, err := range store.List(t.Context(), onlyonce.Filter{}) {
		if text := fmt.Sprint(r); err != nil || strings.Contains(text, "secret") {
			t.Errorf("the store has %s, %v", text, err)
		}
	}
}

func TestSecurity_FingerprintsAreKeyed(t *testing.T) {
	print := func(secret string) []byte {
		store := newStore()
		addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), onlyonce.Config{}, func(r *proxy.Route) {
			r.Guard, r.Idempotency.FingerprintSecret = onlyonce.New(store, onlyonce.Config{}), []byte(secret)
		})
		post(t, addr, "k", "4111111111111111")
		for r := range store.List(t.Context(), onlyonce.Filter{}) {
			return r.Fingerprint
		}
		t.Fatal("no record")
		return nil
	}
	if a, b := print("0123456789abcdef"), print("fedcba9876543210"); len(a) != 32 || bytes.Equal(a, b) {
		t.Errorf("%x and %x", a, b)
	}
}

func TestSecurity_NothingIsMergedByCanonicalForm(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency.Fingerprint = httponce.CanonicalJSON()
	})
	for i, pair := range [][2]string{
		{`{"n":9007199254740992}`, `{"n":9007199254740993}`},
		{`{"n":1e400}`, `{"n":1e401}`},
		{`{"amount":1}`, `{"Amount":1}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`{"a":"\ud800"}`, `{"a":"\ufffd"}`},
		{`{"a":"é"}`, "{\"a\":\"e\u0301\"}"},
	} {
		key := fmt.Sprint(i)
		post(t, addr, key, pair[0])
		res, body := post(t, addr, key, pair[1])
		wantProblem(t, res, body, 422, "idempotency_key_reused", false)
	}
	post(t, addr, "same", `{"a":1,"b":10}`)
	res, body := post(t, addr, "same", ` { "b" : 1e1 , "a" : 1.0 } `)
	wantAnswer(t, res, body, 201, `{"a":1,"b":10}`)
}

func TestSecurity_OddKeysAreRefused(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	const end = "Connection: close\r\nContent-Length: 1\r\n\r\nx"
	for _, header := range []string{
		"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "Idempotency-Key: a\r\nidempotency-key: b\r\n", "Idempotency-Key: a\r\n b\r\n",
		"Idempotency-Key:\r\n", "Idempotency-Key: \"\"\r\n", "Idempotency-Key: a b\r\n", "Idempotency-Key: a,b\r\n", "Idempotency-Key: \"a\r\n",
		"Idempotency-Key: ä\r\n", "Idempotency-Key: a\x00\r\n", "Idempotency-Key: a\x7f\r\n", "Idempotency-Key : a\r\n", "Idempotency-Key: " + strings.Repeat("a", 256) + "\r\n",
		"Idempotency-Key: \"a\";B=1\r\n",
	} {
		if answer := exchange(t, addr, post11+header+end, 1000); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", header, answer)
		}
	}
	if runs.Load() != 0 {
		t.Fatalf("%d runs", runs.Load())
	}
	for _, header := range []string{"Idempotency_Key: a\r\n", "IDEMPOTENCY_KEY: a\r\n", "Idempotency-key_: a\r\n"} {
		n := runs.Load()
		exchange(t, addr, post11+header+end, 1000)
		if answer := exchange(t, addr, post11+header+end, 1000); runs.Load() != n+2 || strings.Contains(answer, "Replayed") {
			t.Errorf("%q counts as a key: %q", header, answer)
		}
	}
}

func TestSecurity_ConnectionCantNameWhatMatters(t *testing.T) {
	got := make(chan http.Header, 1)
	addr := orders(t, upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }), onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency.Header = "X-Request-Key"
		r.SetHeader = http.Header{"X-From": {"proxy"}}
	})
	for _, name := range []string{
		"Idempotency-Key", "Authorization", "X-Tenant", "Host", "Content-Length", "X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Cookie",
		"X-Request-Key", "X-From", "Idempotency-Fence", "Idempotency-Attempt", "Transfer-Encoding", "Content-Type", "X-Forwarded-Anything",
	} {
		for _, list := range []string{name, strings.ToLower(name), "keep-alive, " + name, "x ,\t" + name + "\t,y", "close\r\nConnection: " + name} {
			answer := exchange(t, addr, post11+"Connection: "+list+"\r\nX-Tenant: a\r\nX-Request-Key: k\r\n\r\n", 1000)
			if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "request_invalid") || len(got) > 0 {
				t.Fatalf("Connection: %q: %q", list, answer)
			}
		}
	}
	// Every header is looked for in the whole list.
	for _, list := range []string{strings.Repeat("y,", 100) + "y", strings.Repeat(",", 100), strings.TrimSuffix(strings.Repeat("y\r\nConnection: ", 101), "\r\nConnection: ")} {
		answer := exchange(t, addr, post11+"Connection: "+list+"\r\nX-Tenant: a\r\nX-Request-Key: k\r\n\r\n", 1000)
		if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "request_invalid") || len(got) > 0 {
			t.Fatalf("a long Connection: %q", answer)
		}
	}
	exchange(t, addr, post11+"Connection: close, X-Hop\r\nX-Hop: a\r\nX-Request-Key: k\r\nX-Tenant: t\r\n\r\n", 1000)
	if h := <-got; h.Get("X-Hop") != "" || h.Get("X-Tenant") != "t" || h.Get("X-From") != "proxy" || h.Get("Connection") != "" {
		t.Error(h)
	}
}

func TestSecurity_TheUpstreamIsFixed(t *testing.T) {
	var elsewhere atomic.Int32
	other := upstream(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	hosts := make(chan string, 1)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		hosts <- r.Host
		w.Header().Set("Location", other.URL.String())
		w.WriteHeader(307)
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for _, raw := range []string{
		"POST " + other.URL.String() + "/v1/orders HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET " + other.URL.String() + "/ HTTP/1.1\r\nHost: " + other.URL.Host + "\r\n\r\n",
		"CONNECT " + other.URL.Host + " HTTP/1.1\r\nHost: " + other.URL.Host + "\r\n\r\n",
		"GET @" + other.URL.Host + "/ HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET ?x HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET http:/x HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET //" + other.URL.Host + "/ HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		if answer := exchange(t, addr, raw, 1000); !strings.HasPrefix(answer, "HTTP/1.1 400 ") || len(hosts) > 0 {
			t.Errorf("%q: %q", raw, answer)
		}
	}
	for _, raw := range []string{
		"POST /v1/orders HTTP/1.1\r\nIdempotency-Key: k\r\n", "POST /v1/orders HTTP/1.1\r\n",
		"GET /@" + other.URL.Host + " HTTP/1.1\r\n", "GET /http://" + other.URL.Host + "/ HTTP/1.1\r\n",
	} {
		answer := exchange(t, addr, raw+"Host: 169.254.169.254\r\nX-Forwarded-Host: 169.254.169.254\r\nConnection: close\r\n\r\n", 1000)
		if host := <-hosts; host != up.URL.Host || !strings.HasPrefix(answer, "HTTP/1.1 307 ") {
			t.Errorf("%q went to %s: %q", raw, host, answer)
		}
	}
	if elsewhere.Load() > 0 {
		t.Error("a request went elsewhere")
	}
	up.KeepHost = true
	kept := orders(t, up, onlyonce.Config{}, nil)
	for _, key := range []string{"Idempotency-Key: k\r\n", ""} {
		exchange(t, kept, "POST /v1/orders HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n"+key+"\r\n", 1000)
		if host := <-hosts; host != "api.example" {
			t.Errorf("KeepHost: %s", host)
		}
	}
}

func TestSecurity_WhatComesByHTTP2IsHeldToTheSame(t *testing.T) {
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })}}, proxy.Config{})
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Host = "a@b" },
		func(r *http.Request) { r.Host = `a";for=b` },
		func(r *http.Request) { r.Method = "post" },
		func(r *http.Request) { r.Method = "CONNECT" },
		func(r *http.Request) { r.URL.Host = "169.254.169.254" },
		func(r *http.Request) { r.URL.Scheme = "file" },
		func(r *http.Request) { r.URL.Path = "*" },
		func(r *http.Request) { r.RequestURI = "/a#b" },
		func(r *http.Request) { r.URL.Path, r.RequestURI = "//x/v1/orders", "//x/v1/orders" },
		func(r *http.Request) { r.URL.Path, r.RequestURI = `/\x/v1/orders`, `/\x/v1/orders` },
		func(r *http.Request) { r.URL.Path, r.RequestURI = "/v1/or ders", "/v1/or ders" },
		func(r *http.Request) { r.URL.RawQuery = "a b" },
		func(r *http.Request) { r.Header.Set("Connection", "authorization") },
	} {
		r, w := httptest.NewRequest("POST", "/v1/orders", nil), httptest.NewRecorder()
		r.ProtoMajor, r.Proto = 2, "HTTP/2.0"
		change(r)
		if p.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "request_invalid") || w.Header().Get("Connection") != "" {
			t.Errorf("%s %s %v: %d %s", r.Method, r.URL, r.Header, w.Code, w.Body)
		}
	}
}

func TestSecurity_NothingIsInjectedIntoWhatIsSent(t *testing.T) {
	var runs atomic.Int32
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, counter(&runs)), Guard: newGuard(onlyonce.Config{}), Idempotency: single}}, proxy.Config{})
	for _, change := range []func(*http.Request){ // as a handler round the proxy might
		func(r *http.Request) { r.Header.Set("X", "a\r\nX-Injected: b") },
		func(r *http.Request) { r.Header.Set("X", "a\x00") },
		func(r *http.Request) { r.Header["X: b\r\nY"] = []string{"z"} },
		func(r *http.Request) { r.RequestURI = ""; r.URL.RawQuery = "a b" },
		func(r *http.Request) { r.RequestURI = ""; r.URL.RawQuery = "a\r\nX: y" },
	} {
		r, w := httptest.NewRequest("POST", "/v1/orders", strings.NewReader("x")), httptest.NewRecorder()
		r.Header.Set("Idempotency-Key", "k")
		change(r)
		if p.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "request_invalid") {
			t.Errorf("%q %q: %d %s", r.URL, r.Header, w.Code, w.Body)
		}
	}
	if runs.Load() > 0 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestSecurity_ForwardedIsNotBelievedUnlessTrusted(t *testing.T) {
	got := make(chan http.Header, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	claims := http.Header{
		"X-Forwarded-For": {"10.0.0.1", "10.0.0.2"}, "X-Forwarded-Host": {"bank.example"}, "X-Forwarded-Proto": {"https"}, "Forwarded": {"for=10.0.0.1"},
		"X-Real-Ip": {"10.0.0.1"}, "X-Forwarded-Port": {"443"}, "X_forwarded_for": {"10.0.0.1"}, "X.real.ip": {"10.0.0.1"},
	}
	says := []string{
		"X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Client-Cert", "X-Forwarded-Prefix", "X-Client-Cert", "X-Client-Cert-Chain", "Client-Cert", "X-Ssl-Client-Verify", "Ssl-Client-Subject-Dn",
		"Remote-User", "X-Remote-User", "X-Remote-Group", "X-Auth-Request-User", "X-Auth-Request-Email", "True-Client-Ip", "Cf-Connecting-Ip", "X-Webauth-User",
	}
	for _, name := range says {
		claims.Set(name, "admin")
		claims[strings.ReplaceAll(name, "-", "_")] = []string{"admin"}
	}
	trust := false
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single},
	}, proxy.Config{Protected: []string{"x-auth-request-groups"}, TrustForwarded: func(*http.Request) bool { return trust }}))
	for _, trust = range []bool{false, true} {
		for _, key := range []string{"k" + fmt.Sprint(trust), ""} {
			h := claims.Clone()
			h.Set("X-Auth-Request-Groups", "of the tenant") // ours to believe
			if key != "" {
				h.Set("Idempotency-Key", key)
			}
			send(t, "POST", "http://"+addr+"/v1/orders", h, "x")
			sent := <-got
			want := fmt.Sprintf(`[127.0.0.1] [%s] [http] [for=127.0.0.1;host="%s";proto=http] [] [] [] []`, addr, addr)
			if trust {
				want = `[10.0.0.1, 10.0.0.2, 127.0.0.1] [bank.example] [https] [for=10.0.0.1, for=127.0.0.1;host="bank.example";proto=https] [10.0.0.1] [443] [] []`
			}
			is := ""
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip", "X-Forwarded-Port", "X_forwarded_for", "X.real.ip"} {
				is += fmt.Sprint(sent[name], " ")
			}
			if strings.TrimSpace(is) != want {
				t.Errorf("trust %v, key %q:\n%s, want\n%s", trust, key, is, want)
			}
			for _, name := range says {
				if len(sent[strings.ReplaceAll(name, "-", "_")]) > 0 || (len(sent[name]) > 0) != trust {
					t.Errorf("trust %v, key %q: %s is sent: %v", trust, key, name, sent[name])
				}
			}
			if sent.Get("X-Auth-Request-Groups") != "of the tenant" {
				t.Errorf("the tenant's header is %q", sent["X-Auth-Request-Groups"])
			}
		}
	}
}

func TestSecurity_BodiesAreBounded(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, counter(&runs))
	addr := serve(t, proxy.New([]proxy.Route{
		{Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: httponce.Config{Tenant: httponce.SingleTenant, MaxBody: 1000}, MaxBody: 2000},
		{Pattern: "/pointed", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: httponce.Config{Tenant: httponce.SingleTenant, MaxBody: 1000}, KeyPointer: "/id"},
	}, proxy.Config{}))
	long := strings.Repeat("x", 2001) // the rest of a body that is rejected has to come, too
	chunked := "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("400\r\n"+strings.Repeat("x", 1024)+"\r\n", 100) + "0\r\n\r\n"
	for _, request := range []string{
		post11 + "Idempotency-Key: k\r\nContent-Length: 1001\r\n\r\n" + long[:1001],
		post11 + "Idempotency-Key: k\r\nContent-Length: 999999999999999\r\n\r\n",
		post11 + "Idempotency-Key: k\r\n" + chunked,
		post11 + "Content-Length: 2001\r\n\r\n" + long,
		post11 + chunked,
		"POST /pointed HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n" + long[:1001],
		"POST /pointed HTTP/1.1\r\nHost: h\r\n" + chunked,
	} {
		if answer := exchange(t, addr, request, len(request)); !strings.HasPrefix(answer, "HTTP/1.1 413 ") || !strings.Contains(answer, "body_too_large") {
			t.Errorf("%.100q: %q", request, answer)
		}
	}
	if answer := exchange(t, addr, post11+chunked, len(post11+chunked)); strings.Contains(answer, "Nothing was done") {
		t.Errorf("of a body whose beginning the upstream has got: %q", answer)
	}
	if n := runs.Load(); n > 2 { // of one that passes, the upstream may see a part
		t.Errorf("%d runs", n)
	}
	res, body := post(t, addr, "k", strings.Repeat("x", 1000))
	wantAnswer(t, res, body, 201, "attempt 1")
	res, body = post(t, addr, "", strings.Repeat("x", 2000))
	wantAnswer(t, res, body, 201, "attempt ,")
}

func TestSecurity_ABombIsNotDecompressed(t *testing.T) {
	var lengths atomic.Int64
	bomb := strings.Repeat("\x1f\x8b bomb", 100)
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		lengths.Add(n)
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, bomb)
	}), onlyonce.Config{}, nil)
	for _, key := range []string{"k", ""} {
		h := http.Header{"Content-Encoding": {"gzip"}, "Accept-Encoding": {"gzip"}}
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
		if _, body := send(t, "POST", "http://"+addr+"/v1/orders", h, bomb); body != bomb {
			t.Errorf("key %q: the answer is %d bytes", key, len(body))
		}
	}
	if lengths.Load() != int64(2*len(bomb)) {
		t.Errorf("the upstream got %d bytes", lengths.Load())
	}
}

func TestSecurity_ALongHeaderIsRefused(t *testing.T) {
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") }), onlyonce.Config{}, nil)
	for _, raw := range []string{
		get11 + "X: " + strings.Repeat("x", 40<<10) + "\r\n\r\n",
		get11 + strings.Repeat("X: x\r\n", 10_000) + "\r\n",
		"GET /" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		if answer := exchange(t, addr, raw, len(raw)); !strings.HasPrefix(answer, "HTTP/1.1 4") {
			t.Errorf("%.40q: %q", raw, answer)
		}
	}
	if s := proxy.Server(nil); s.ReadHeaderTimeout != 5*time.Second || s.MaxHeaderBytes != 32<<10 || s.IdleTimeout == 0 {
		t.Error("the server's limits")
	}
}

func TestSecurity_ASlowBodyEnds(t *testing.T) {
	var runs atomic.Int32
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			runs.Add(1)
		}
	})
	addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single}, {
		Pattern: "/pointed", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single, KeyPointer: "/id",
	}}, proxy.Config{BodyTimeout: 50 * time.Millisecond}))
	for _, head := range []string{post11 + "Idempotency-Key: k\r\n", post11, "POST /pointed HTTP/1.1\r\nHost: h\r\n"} {
		for _, body := range []string{"Content-Length: 10\r\n\r\n", "Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nha"} {
			if answer := exchange(t, addr, head+body, 1000); !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "body_unreadable") {
				t.Errorf("%q: %q", head+body, answer)
			}
		}
	}
	if runs.Load() > 0 {
		t.Errorf("%d runs", runs.Load())
	}
	for _, head := range []string{"POST /none HTTP/1.1\r\nHost: h\r\n", post11 + "Connection: cookie\r\n", post11 + "Idempotency-Key: ,\r\n"} { // nor does one that nobody reads stay
		if answer := exchange(t, addr, head+"Content-Length: 10\r\n\r\n", 1000); !strings.HasPrefix(answer, "HTTP/1.1 4") {
			t.Errorf("%q: %q", head, answer)
		}
	}
}

// A lenient writer notes until when the request may be read, and allows any time.
type lenient struct {
	http.ResponseWriter
	until atomic.Pointer[time.Time]
}

func (w *lenient) SetReadDeadline(t time.Time) error {
	w.until.Store(&t)
	return nil
}

func (w *lenient) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestSecurity_ADrippingBodyEndsIfItIsKept(t *testing.T) {
	const limit = 500 * time.Millisecond
	p := proxy.New([]proxy.Route{{
		Pattern: "/v1/orders", Upstream: upstream(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), Guard: newGuard(onlyonce.Config{}), Idempotency: single,
	}}, proxy.Config{BodyTimeout: limit})
	drip := func(key string, h http.Handler, enough func() bool) string {
		c := dial(t, serve(t, h))
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, post11+key+"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
		go func() {
			for ; !enough(); time.Sleep(10 * time.Millisecond) {
				if _, err := io.WriteString(c, "1\r\nx\r\n"); err != nil {
					return
				}
			}
			io.WriteString(c, "0\r\n\r\n")
		}()
		answer, _ := bufio.NewReader(c).ReadString('\n')
		return answer
	}
	if answer := drip("Idempotency-Key: k\r\n", p, func() bool { return false }); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Errorf("kept: %q", answer)
	}
	var last atomic.Pointer[lenient]
	began := time.Now()
	answer := drip("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made := &lenient{ResponseWriter: w}
		last.Store(made)
		p.ServeHTTP(made, r)
	}), func() bool { // each byte has its time, and so all of them more than that
		w := last.Load()
		return w != nil && w.until.Load() != nil && w.until.Load().Sub(began) > 2*limit
	})
	if !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Errorf("passed: %q", answer)
	}
}

func TestSecurity_WhatComesInTimeIsNotEnded(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	short, long := `{"a":1}`, `{"a":"`+strings.Repeat("x", 100<<10)+`"}`
	requests := []struct{ path, key, body string }{
		{"/v1/orders", "", short}, {"/v1/orders", "", long}, {"/v1/orders", "a", short}, {"/v1/orders", "b", long}, {"/pointed", "", short}, {"/pointed", "", long}, {"/pointed", "c", long},
	}
	came, end := make(chan bool, 2*len(requests)), make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		came <- true
		<-end
		fmt.Fprint(w, n)
	})
	p := proxy.New([]proxy.Route{
		{Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single},
		{Pattern: "/pointed", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single, KeyPointer: "/id"},
	}, proxy.Config{BodyTimeout: limit})
	sent := make(chan bool)
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-sent // all of its body, when its time begins
		p.ServeHTTP(w, r)
	}))
	var all sync.WaitGroup
	for i, r := range requests {
		c := dial(t, addr)
		c.SetDeadline(time.Now().Add(patience))
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n", r.path, len(r.body))
		if r.key != "" {
			head += "Idempotency-Key: " + r.key + "\r\n"
		}
		io.WriteString(c, head+"\r\n"+r.body)
		all.Go(func() {
			defer func() { came <- true }() // also one that is rejected
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			if body, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(body) != fmt.Sprint(len(r.body)) {
				t.Errorf("%d: %d %s", i, res.StatusCode, body)
			}
		})
	}
	close(sent)
	for range requests {
		<-came
	}
	time.Sleep(limit * 9 / 8) // longer than a body may take, which has come to its end
	close(end)
	all.Wait()
}

func TestSecurity_ASlowHeaderEnds(t *testing.T) {
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) {})}}, proxy.Config{})
	s := proxy.Server(p)
	s.ReadHeaderTimeout = 50 * time.Millisecond
	l := listen(t)
	defer s.Close()
	go s.Serve(proxy.Listen(l, nil))
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if answer := exchange(t, l.Addr().String(), "GET / HTTP/1.1\r\nX: ", 5); strings.HasPrefix(answer, "HTTP/1.1 2") {
				t.Error(answer)
			}
		})
	}
	all.Wait()
}

func TestSecurity_WaitersAreBounded(t *testing.T) {
	end := make(chan struct{})
	var runs atomic.Int32
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { runs.Add(1); <-end }),
		onlyonce.Config{Wait: time.Minute, MaxWaitersPerID: 1}, nil)
	answers := make(chan int, 10)
	for range 10 {
		go func() {
			res, _ := post(t, addr, "k", "x")
			answers <- res.StatusCode
		}()
	}
	for range 8 { // one runs, one waits
		if status := <-answers; status != 409 {
			t.Errorf("status %d", status)
		}
	}
	close(end)
	if a, b := <-answers, <-answers; a != 200 || b != 200 || runs.Load() != 1 {
		t.Errorf("%d %d, %d runs", a, b, runs.Load())
	}
}

func TestSecurity_NewKeysAreBounded(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency = httponce.Config{Tenant: byTenant, MaxNewKeys: 2}
	})
	for i := range 3 {
		res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed("a", fmt.Sprint(i)), "x")
		if i < 2 {
			wantAnswer(t, res, body, 201, "")
			continue
		}
		wantProblem(t, res, body, 429, "too_many_requests", true)
	}
	res, body := send(t, "POST", "http://"+addr+"/v1/orders", keyed("b", "0"), "x")
	wantAnswer(t, res, body, 201, "run 3")
}

// collided is a store in which every key has the record of the first.
type collided struct{ onlyonce.Store }

func (s collided) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	c.ID.Key = "k"
	return s.Store.Claim(ctx, c)
}

func TestSecurity_ACollisionGivesAwayNoAnswer(t *testing.T) {
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") }), onlyonce.Config{}, func(r *proxy.Route) {
		r.Guard = onlyonce.New(collided{newStore()}, onlyonce.Config{})
		r.Idempotency.SkipFingerprint = true
	})
	post(t, addr, "k", "x")
	if res, body := post(t, addr, "l", "x"); res.StatusCode < 400 || strings.Contains(body, "secret") {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func TestSecurity_LogsTellNoSecrets(t *testing.T) {
	var log strings.Builder
	var reported atomic.Value
	r := proxy.Route{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) {}), Idempotency: single}
	r.Guard = onlyonce.New(newStore(), onlyonce.Config{Observer: onlyonce.SlogObserver(slog.New(slog.NewTextHandler(&log, nil)), nil)})
	addr := serve(t, proxy.New([]proxy.Route{r}, proxy.Config{OnError: func(_ *http.Request, err error) { reported.Store(err.Error()) }}))
	post(t, addr, "alice-example-com", "secret body")
	exchange(t, addr, get11+"Connection: authorization\r\nAuthorization: secret\r\n\r\n", 1000)
	if text := log.String() + reported.Load().(string); strings.Contains(text, "alice") || strings.Contains(text, "secret") || !strings.Contains(text, "Authorization") {
		t.Error(text)
	}
}

func TestSecurity_RefusalsTellNothing(t *testing.T) {
	end := make(chan struct{})
	started := make(chan bool, 1)
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		started <- true
		<-end
		w.Header().Set("X-Theirs", "theirs")
		io.WriteString(w, "theirs")
	}), onlyonce.Config{}, nil)
	done := make(chan bool)
	go func() {
		post(t, addr, "k", "theirs")
		done <- true
	}()
	<-started
	_, running := post(t, addr, "k", "mine")
	close(end)
	<-done
	res, settled := post(t, addr, "k", "mine")
	if running != settled || strings.Contains(settled, "theirs") || res.Header.Get("X-Theirs") != "" || res.StatusCode != 422 {
		t.Errorf("%q, then %d %q %v", running, res.StatusCode, settled, res.Header)
	}
}

func TestSecurity_ASecretIsNotReplayed(t *testing.T) {
	store := newStore()
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		io.WriteString(w, "one-time token")
	}), onlyonce.Config{}, func(r *proxy.Route) {
		r.Guard, r.DontStoreBody = onlyonce.New(store, onlyonce.Config{}), true
	})
	res, body := post(t, addr, "k", "x")
	wantAnswer(t, res, body, 201, "one-time token")
	res, body = post(t, addr, "k", "x")
	if res.StatusCode != 201 || body != "" || res.Header.Get("Idempotency-Replay") != "omitted" {
		t.Errorf("%d %q %v", res.StatusCode, body, res.Header)
	}
	for r := range store.List(t.Context(), onlyonce.Filter{}) {
		if len(r.Result.Body) > 0 {
			t.Errorf("the store has %q", r.Result.Body)
		}
	}
}

func TestSecurity_WithoutItsStoreNothingRuns(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, func(r *proxy.Route) { r.Guard = onlyonce.New(broken{}, onlyonce.Config{}) })
	res, body := post(t, addr, "k", "x")
	wantProblem(t, res, body, 503, "store_unavailable", true)
	if runs.Load() != 0 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d runs, %v", runs.Load(), res.Header)
	}
}
