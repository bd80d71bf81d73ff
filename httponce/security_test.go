package httponce_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// byTenant is a Config whose tenant is named by a header.
var byTenant = httponce.Config{Tenant: func(r *http.Request) string { return r.Header.Get("X-Tenant") }}

func postAs(h http.Handler, tenant, key, body string) *httptest.ResponseRecorder {
	r := keyed("POST", "/orders", key, body)
	r.Header.Set("X-Tenant", tenant)
	return serve(h, r)
}

func TestSecurity_CrossTenantReplay(t *testing.T) {
	var runs atomic.Int32
	cfg := byTenant
	cfg.KeyFormat.Chars = "abc|/"
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	for i, id := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "c"}, {"a|b", "c"}, {"a", "b|c"}, {"a/b", "c"}, {"a", "b/c"}, {"A", "b"}} {
		wantResponse(t, postAs(h, id[0], id[1], "same"), 201, fmt.Sprintf("run %d of same", i+1))
	}
	w := postAs(h, "", "a", "same")
	wantProblem(t, w, 401, "tenant_missing")
	wantResponse(t, postAs(h, "a", "b", "same"), 201, "run 1 of same")
	wantResponse(t, postAs(h, "x", "b", "other"), 201, "") // nobody learns that a key is in use
}

func TestSecurity_ReplayAfterPermissionRevoked(t *testing.T) {
	var runs atomic.Int32
	allowed := true
	inner := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed {
			http.Error(w, "forbidden", 403)
			return
		}
		inner.ServeHTTP(w, r)
	})
	wantResponse(t, post(h, "k", "x"), 201, "")
	allowed = false
	wantResponse(t, post(h, "k", "x"), 403, "forbidden\n")
}

func TestSecurity_ASlowRequestClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), single)
		slow, end := io.Pipe()
		r := keyed("POST", "/orders", "k", "")
		r.Body, r.ContentLength = slow, 1
		go serve(h, r)
		end.Write([]byte("x"))
		synctest.Wait()
		wantResponse(t, post(h, "k", "theirs"), 201, "run 1 of theirs")
		end.Close()
	})
}

func TestSecurity_AKeyOfARejectedRequestIsFree(t *testing.T) {
	runs := 0
	h := httponce.Wrap(newGuard(onlyonce.Config{}), responding(403, &runs), single)
	post(h, "k", "attacker")
	wantResponse(t, post(h, "k", "victim"), 403, "run 2")
}

// secrets must not be in a replay; plain headers must.
var (
	secrets = []string{
		"Set-Cookie", "Set-Cookie2", "WWW-Authenticate", "Proxy-Authenticate", "Proxy-Authentication-Info", "Authentication-Info", "Authorization", "Proxy-Authorization",
		"X-Amzn-Remapped-Authorization", "X-CSRF-Token", "X-Xsrf-Token", "Csrf-Token", "XSRF-TOKEN", "Date", "Age", "Traceparent", "Tracestate", "X-B3-TraceId", "Server-Timing",
		"Clear-Site-Data", "Keep-Alive", "Proxy-Connection", "TE", "Upgrade", "X-Hop", "Idempotency-Replayed", "Idempotency-Protected", "set-cookie", "SET-COOKIE", "x-csrf-token",
		"X-Auth-Token", "X-Access-Token", "Access_Token", "X-Session-Token", "X-Session-Id", "X-Api-Key", "X-ApiKey", "Refresh-Token", "X-Amz-Security-Token", "X-Vault-Token",
		"X-Client-Secret", "X-Credentials", "X-Password", "X-Passwd", "X-Auth", "X-Authn-Request", "X-Functions-Key", "Ocp-Apim-Subscription-Key", "X-Private-Key", "X-Jwt", "X-Bearer",
		"X-OTP", "X-Sid", "PHPSESSID", "X-Cookie", "X_Api_Key", "x.session.token", "X-Ticket",
	}
	plain = []string{
		"Content-Type", "Location", "ETag", "Cache-Control", "Content-Language", "Last-Modified", "Vary", "X-Request-Id", "Retry-After", "Link", "x-odd-case",
		"X-Author", "X-Authority", "X-Monkey", "X-Ratelimit-Remaining", "Idempotency-Key", "Surrogate-Key", "X-Pinned", "X-Tickets-Left",
	}
)

func TestSecurity_CachedCredentials(t *testing.T) {
	store := memstore.New(memstore.Config{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range append(secrets, plain...) {
			w.Header()[name] = []string{"secret", "of " + name}
		}
		w.Header().Set("Trailer", "Set-Cookie, X-Sum")
		w.Header()["Connection"] = []string{"close", "keep-alive, x-hop"}
		w.WriteHeader(201)
		w.Header().Set("Set-Cookie", "in a trailer")
	})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), handler, single)
	first, again := post(h, "k", "x").Header(), post(h, "k", "x").Header()
	for _, name := range secrets {
		if first[name] == nil {
			t.Errorf("%s does not reach the first client", name)
		}
		if vs := again[name]; fmt.Sprint(vs) == fmt.Sprint([]string{"secret", "of " + name}) {
			t.Errorf("%s is replayed", name)
		}
	}
	for _, name := range plain {
		if fmt.Sprint(again[name]) != fmt.Sprint([]string{"secret", "of " + name}) {
			t.Errorf("%s is replayed as %v", name, again[name])
		}
	}
	if got := fmt.Sprint(lookup(t, store, "k")); strings.Contains(strings.ToLower(got), "cookie:") || strings.Contains(got, "in a trailer") {
		t.Errorf("the record has %s", got)
	}
}

func TestSecurity_MoreOrFewerHeadersAreReplayed(t *testing.T) {
	var byDefaults []string
	cfg := single
	cfg.ReplayHeader = func(name string, byDefault bool) bool {
		byDefaults = append(byDefaults, fmt.Sprint(name, byDefault))
		return name == "Set-Cookie" || byDefault && name != "X-Private"
	}
	h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"Set-Cookie", "X-Private", "X-Public", "Upgrade"} {
			w.Header().Set(name, "1")
		}
	}), cfg)
	post(h, "k", "x")
	again := post(h, "k", "x").Header()
	if again.Get("Set-Cookie") != "1" || again.Get("X-Public") != "1" || again.Get("X-Private") != "" || again.Get("Upgrade") != "" {
		t.Fatalf("the repeat has %v; asked %v", again, byDefaults)
	}
}

func TestSecurity_HeadersOfOuterHandlersAreNotStored(t *testing.T) {
	n := 0
	inner := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept")
		w.Header().Set("X-Mine", "1")
	}), single)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("X-Request-Id", fmt.Sprint(n))
		w.Header().Set("Vary", "Origin")
		inner.ServeHTTP(w, r)
	})
	for n := 1; n <= 2; n++ {
		w := post(h, "k", "x")
		if head := w.Header(); head.Get("X-Request-Id") != fmt.Sprint(n) || fmt.Sprint(head["Vary"]) != "[Origin Accept]" || head.Get("X-Mine") != "1" {
			t.Fatalf("response %d has %v", n, head)
		}
	}
}

func TestSecurity_NumbersThatOnlyAFloatMerges(t *testing.T) {
	var runs atomic.Int32
	cfg := single
	cfg.Fingerprint = httponce.CanonicalJSON()
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	post(h, "k", `{"amount":9007199254740992}`)
	for _, body := range []string{
		`{"amount":9007199254740993}`, `{"Amount":9007199254740992}`, `{"amount":9007199254740992,"amount":1}`, `{"amount":"9007199254740992"}`,
		"\ufeff" + `{"amount":9007199254740992}`, `{"amount":9007199254740992.1}`, `{"amount":1e400}`, `{"amount":9007199254740992,"x":"\ud800"}`,
	} {
		wantProblem(t, post(h, "k", body), 422, "idempotency_key_reused")
	}
	wantProblem(t, post(h, "k", `{"amount":9007199254740992.0}`), 422, "idempotency_key_reused") // which 9007199254740993.0 is to many
	post(h, "l", `{"amount":9007199254740991}`)
	wantResponse(t, post(h, "l", ` { "amount" : 9007199254740991.0e0 } `), 201, "")
}

func TestSecurity_OddKeyHeaders(t *testing.T) {
	store := &flaky{Store: memstore.New(memstore.Config{})}
	var runs atomic.Int32
	s := newServer(t, httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), single), false)
	long := strings.Repeat("k", 300)
	for _, c := range []struct {
		lines string
		want  string // the code, "ran", or "400" where net/http rejects
	}{
		{"Idempotency-Key: fine\r\n", "ran"},
		{"IDEMPOTENCY-KEY: fine\r\n", "ran"},
		{"Idempotency-Key:\t \"fine\" ;a=1 \r\n", "idempotency_key_invalid"},
		{"Idempotency-Key:\t \"fine\";a=1 \r\n", "ran"},
		{"Idempotency_Key: a,b\r\n", "ran"}, // another header: the request has no key
		{"X-Idempotency-Key: a,b\r\n", "ran"},
		{"Idempotency-Key:\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: a\r\nIdempotency-Key: a\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: a\r\nidempotency-key: b\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: a, b\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: a\r\n b\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: caf\xc3\xa9\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: a\xff\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: " + long + "\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: \"a\r\n", "idempotency_key_invalid"},
		{"Idempotency-Key: a\x00b\r\n", "400"},
		{"Idempotency-Key : a\r\n", "400"},
	} {
		before := runs.Load()
		got := raw(t, s, "POST /orders HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n"+c.lines+"\r\nx")
		switch {
		case c.want == "ran" && !strings.HasPrefix(got, "HTTP/1.1 201 "),
			c.want == "400" && !strings.HasPrefix(got, "HTTP/1.1 400 "),
			strings.HasPrefix(c.want, "idem") && (!strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, c.want)):
			t.Errorf("%q: %s", c.lines, got)
		}
		if c.want != "ran" && runs.Load() != before {
			t.Errorf("%q ran", c.lines)
		}
	}
	if runs.Load() != 3 { // one with the key "fine", and the two without a key
		t.Errorf("%d runs", runs.Load())
	}
	store.claim = errBroken
	if got := raw(t, s, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\nIdempotency-Key: a,b\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("the store is asked for a key that is not valid: %s", got)
	}
}

// raw sends bytes, and returns the bytes of the response until the server closes.
func raw(t *testing.T, s *httptest.Server, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// A colliding store takes every command for the first one it saw, as if their
// hashes were the same.
type colliding struct {
	onlyonce.Store
	first onlyonce.ID
}

func (s *colliding) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if s.first == (onlyonce.ID{}) {
		s.first = c.ID
	}
	c.ID = s.first
	return s.Store.Claim(ctx, c)
}

func TestSecurity_ACollisionGivesNobodyAnothersResponse(t *testing.T) {
	var runs atomic.Int32
	h := httponce.Wrap(onlyonce.New(&colliding{Store: memstore.New(memstore.Config{})}, onlyonce.Config{}), counter(&runs), byTenant)
	postAs(h, "victim", "k", "same")
	w := postAs(h, "other", "k", "same")
	wantProblem(t, w, 503, "store_unavailable")
	if runs.Load() != 1 {
		t.Fatalf("%d runs", runs.Load())
	}
}

func TestSecurity_LogsShowNeitherKeysNorControlCharacters(t *testing.T) {
	var log bytes.Buffer
	g := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{
		Observer: onlyonce.SlogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil),
	})
	var runs atomic.Int32
	h := httponce.Wrap(g, counter(&runs), single)
	for _, key := range []string{"a\r\nlevel=ERROR", "a\x1b[31m", "a\nb", "a\x00", "alice-example-com"} {
		w := post(h, key, "x")
		if strings.Contains(w.Body.String(), key) && w.Code != 201 {
			t.Errorf("%q is echoed: %s", key, w.Body)
		}
	}
	post(h, "alice-example-com", "secret body")
	if text := log.String(); strings.Contains(text, "alice") || strings.Contains(text, "secret") || strings.ContainsAny(text, "\r\x1b\x00") || !strings.Contains(text, "idempotency_conflict") {
		t.Errorf("log: %s", text)
	}
}

func TestSecurity_RejectionsTellNothingOfTheFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		h := httponce.Wrap(newGuard(onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Theirs", "theirs")
			io.WriteString(w, "theirs")
			<-end
		}), single)
		go post(h, "k", "theirs")
		synctest.Wait()
		mine := []*httptest.ResponseRecorder{post(h, "k", "mine"), post(h, "k", "theirs")}
		close(end)
		synctest.Wait()
		mine = append(mine, post(h, "k", "mine"))
		for i, status := range []int{422, 409, 422} {
			if w := mine[i]; w.Code != status || strings.Contains(w.Body.String(), "theirs") || w.Header().Get("X-Theirs") != "" || w.Header().Get("Idempotency-Expires") != "" {
				t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
			}
		}
		if mine[0].Body.String() != mine[2].Body.String() {
			t.Error("a rejection tells whether the first request still runs")
		}
	})
}

func TestSecurity_FingerprintsCantBeFoundByTrying(t *testing.T) {
	fingerprint := func(secret []byte, body string) []byte {
		store := memstore.New(memstore.Config{})
		var runs atomic.Int32
		cfg := single
		cfg.FingerprintSecret = secret
		h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), cfg)
		wantResponse(t, post(h, "k", body), 201, "run 1 of "+body)
		wantResponse(t, post(h, "k", body), 201, "run 1 of "+body)
		wantProblem(t, post(h, "k", body+"0"), 422, "idempotency_key_reused")
		return lookup(t, store, "k").Fingerprint
	}
	secret := []byte("0123456789abcdef")
	with := fingerprint(secret, "4111")
	if !bytes.Equal(with, fingerprint(secret, "4111")) || bytes.Equal(with, fingerprint(nil, "4111")) || bytes.Equal(with, fingerprint([]byte("another secret of us"), "4111")) {
		t.Fatal("the fingerprint is not that of the body and the secret")
	}
}

func TestSecurity_ReplayOfStaleSecrets(t *testing.T) {
	store := memstore.New(memstore.Config{})
	h := httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httponce.DontStoreBody(r)
		w.Header().Set("Location", "/tokens/1")
		w.WriteHeader(201)
		io.WriteString(w, "one-time token")
	}), single)
	wantResponse(t, post(h, "k", "x"), 201, "one-time token")
	again := post(h, "k", "x")
	if again.Code != 201 || again.Body.Len() != 0 || again.Header().Get("Idempotency-Replay") != "omitted" || again.Header().Get("Location") != "/tokens/1" {
		t.Fatalf("the repeat: %d %q %v", again.Code, again.Body, again.Header())
	}
	if rec := lookup(t, store, "k"); len(rec.Result.Body) != 0 {
		t.Fatalf("the record has %q", rec.Result.Body)
	}
}

func TestSecurity_WithoutItsStoreNothingRuns(t *testing.T) {
	store := &flaky{Store: memstore.New(memstore.Config{}), claim: context.DeadlineExceeded}
	var runs atomic.Int32
	wantProblem(t, post(httponce.Wrap(onlyonce.New(store, onlyonce.Config{}), counter(&runs), single), "k", "x"), 503, "store_unavailable")
	if runs.Load() != 0 {
		t.Fatal("it ran")
	}
}

func TestSecurity_NoTenantIsNamedLikeWhatStandsForAnother(t *testing.T) {
	long := strings.Repeat("t", 1025)
	shortened := fmt.Sprintf("sha256:%x", onlyonce.Fingerprint([]byte(long)))
	var runs atomic.Int32
	cfg := byTenant
	cfg.Operation = func(r *http.Request) string { return r.URL.Query().Get("op") }
	h := httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	wantResponse(t, postAs(h, long, "k", "x"), 201, "run 1 of x")
	wantResponse(t, postAs(h, shortened, "k", "x"), 201, "run 2 of x")
	wantResponse(t, postAs(h, long, "k", "x"), 201, "run 1 of x")
	wantResponse(t, postAs(h, shortened, "k", "x"), 201, "run 2 of x")
	cfg.SkipFingerprint = true
	h = httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg)
	for i, op := range []string{long, shortened} {
		r := keyed("POST", "/orders?op="+op, "k", "x")
		r.Header.Set("X-Tenant", "a")
		wantResponse(t, serve(h, r), 201, fmt.Sprintf("run %d of x", 3+i))
	}
}
