package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

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
		wantResponse(t, res, body, 201, fmt.Sprintf("run %d,", i+1))
	}
	res, body := send(t, "POST", "http://"+addr+"/v1/orders", http.Header{"Idempotency-Key": {"a"}}, "same")
	wantProblem(t, res, body, 401, "tenant_missing", false)
	response := exchange(t, addr, post11+"X_Tenant: a\r\nIdempotency-Key: b\r\nConnection: close\r\nContent-Length: 4\r\n\r\nsame", 1000)
	if !strings.HasPrefix(response, "HTTP/1.1 401 ") {
		t.Error(response)
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
	wantResponse(t, res, body, 201, `{"a":1,"b":10}`)
}

func TestSecurity_OddKeysAreRejected(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	const end = "Connection: close\r\nContent-Length: 1\r\n\r\nx"
	for _, header := range []string{
		"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "Idempotency-Key: a\r\nidempotency-key: b\r\n", "Idempotency-Key: a\r\n b\r\n",
		"Idempotency-Key:\r\n", "Idempotency-Key: \"\"\r\n", "Idempotency-Key: a b\r\n", "Idempotency-Key: a,b\r\n", "Idempotency-Key: \"a\r\n",
		"Idempotency-Key: ä\r\n", "Idempotency-Key: a\x00\r\n", "Idempotency-Key: a\x7f\r\n", "Idempotency-Key : a\r\n", "Idempotency-Key: " + strings.Repeat("a", 256) + "\r\n",
		"Idempotency-Key: \"a\";B=1\r\n",
	} {
		if response := exchange(t, addr, post11+header+end, 1000); !strings.HasPrefix(response, "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", header, response)
		}
	}
	if runs.Load() != 0 {
		t.Fatalf("%d runs", runs.Load())
	}
	for _, header := range []string{"Idempotency_Key: a\r\n", "IDEMPOTENCY_KEY: a\r\n", "Idempotency-key_: a\r\n"} {
		n := runs.Load()
		exchange(t, addr, post11+header+end, 1000)
		if response := exchange(t, addr, post11+header+end, 1000); runs.Load() != n+2 || strings.Contains(response, "Replayed") {
			t.Errorf("%q counts as a key: %q", header, response)
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
			response := exchange(t, addr, post11+"Connection: "+list+"\r\nX-Tenant: a\r\nX-Request-Key: k\r\n\r\n", 1000)
			if !strings.HasPrefix(response, "HTTP/1.1 400 ") || !strings.Contains(response, "request_invalid") || len(got) > 0 {
				t.Fatalf("Connection: %q: %q", list, response)
			}
		}
	}
	// Every header is looked for in the whole list.
	for _, list := range []string{strings.Repeat("y,", 100) + "y", strings.Repeat(",", 100), strings.TrimSuffix(strings.Repeat("y\r\nConnection: ", 101), "\r\nConnection: ")} {
		response := exchange(t, addr, post11+"Connection: "+list+"\r\nX-Tenant: a\r\nX-Request-Key: k\r\n\r\n", 1000)
		if !strings.HasPrefix(response, "HTTP/1.1 400 ") || !strings.Contains(response, "request_invalid") || len(got) > 0 {
			t.Fatalf("a long Connection: %q", response)
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
		if response := exchange(t, addr, raw, 1000); !strings.HasPrefix(response, "HTTP/1.1 400 ") || len(hosts) > 0 {
			t.Errorf("%q: %q", raw, response)
		}
	}
	for _, raw := range []string{
		"POST /v1/orders HTTP/1.1\r\nIdempotency-Key: k\r\n", "POST /v1/orders HTTP/1.1\r\n",
		"GET /@" + other.URL.Host + " HTTP/1.1\r\n", "GET /http://" + other.URL.Host + "/ HTTP/1.1\r\n",
	} {
		response := exchange(t, addr, raw+"Host: 169.254.169.254\r\nX-Forwarded-Host: 169.254.169.254\r\nConnection: close\r\n\r\n", 1000)
		if host := <-hosts; host != up.URL.Host || !strings.HasPrefix(response, "HTTP/1.1 307 ") {
			t.Errorf("%q went to %s: %q", raw, host, response)
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

// collided is a store in which every key has the record of the first.
type collided struct{ onlyonce.Store }

func (s collided) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	c.ID.Key = "k"
	return s.Store.Claim(ctx, c)
}

func TestSecurity_ACollisionRevealsNoResponse(t *testing.T) {
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

func TestSecurity_ErrorsOfMalformedResponsesDoNotQuoteThem(t *testing.T) {
	for _, response := range []string{
		"secret\r\n\r\n",
		"HTTP/1.1 secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nsecret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n",
	} {
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) { return response, false })
		var reported atomic.Value
		addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up}}, proxy.Config{OnError: func(_ *http.Request, err error) { reported.Store(err.Error()) }}))
		if res := exchange(t, addr, get11+"Connection: close\r\n\r\n", 1000); !strings.HasPrefix(res, "HTTP/1.1 502 ") {
			t.Errorf("%q: %q", response, res)
		} else if text := reported.Load().(string); text == "" || strings.Contains(text, "secret") {
			t.Errorf("%q is reported as %q", response, text)
		}
	}
}

func TestSecurity_RejectionsTellNothing(t *testing.T) {
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
	wantResponse(t, res, body, 201, "one-time token")
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
