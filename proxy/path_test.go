package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// TestPath_NoSpellingOfAPathGoesRoundItsRoute sends each with a key, once as it is and
// once again: protected requests are replayed, and forwarded paths are in normal form.
func TestPath_NoSpellingOfAPathGoesRoundItsRoute(t *testing.T) {
	var rejected atomic.Int32
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { rejected.Add(1); fmt.Fprint(w, r.RequestURI) })
	guard := newGuard(onlyonce.Config{})
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: guard, Idempotency: single},
		{Method: "POST", Pattern: "/v1/orders/{id}/pay", Upstream: up, Guard: guard, Idempotency: single},
		{Method: "POST", Pattern: "/v1/tree/", Upstream: up, Guard: guard, Idempotency: single},
		{Method: "POST", Pattern: "/v1/Exact/{Name}", Upstream: up, Guard: guard, Idempotency: single},
		{Pattern: "/", Upstream: up},
	}, proxy.Config{}))
	for i, c := range []struct {
		path, sent string // sent "": as it is
		protected  bool
	}{
		{"/v1/orders", "", true},
		{"/x/../v1/orders", "/v1/orders", true},
		{"/x/%2e%2E/v1/orders", "/v1/orders", true},
		{"/x/.%2E/v1/orders", "/v1/orders", true},
		{"/v1/./orders", "/v1/orders", true},
		{"/v1/orders/.", "/v1/orders/", true},
		{"/v1/orders/x/..", "/v1/orders/", true},
		{"/../../v1/orders", "/v1/orders", true},
		{"/v1/orders/", "", true},
		{"/v1/%6frders", "/v1/orders", true},
		{"/%76%31/orders", "/v1/orders", true},
		{"/v1/orders?a=b", "", true},
		{"/v1/orders?/../x;y", "", true},
		{"/v1/orders/7/pay", "", true},
		{"/v1/orders/%7e7/pay", "/v1/orders/~7/pay", true},
		{"/v1/orders/a|b/pay", "/v1/orders/a%7Cb/pay", true},
		{"/v1/orders/7/pay/", "", true},
		{"/v1/tree/a/b", "", true},
		{"/v1/tree/a%2fb;c//%25%20d.", "/v1/tree/a%2Fb;c//%25%20d.", true},
		{"/v1/tree", "", true},
		{"/v1/orders/7", "", false},
		{"/v1/Orders", "", true},
		{"/v1/order%C5%BF", "", true},
		{"/V1/ORDERS/", "", true},
		{"/V1/%4fRDERS/7/Pay", "/V1/ORDERS/7/Pay", true},
		{"/V1/Tree/A", "", true},
		{"/v1/exact/X", "", true},
		{"/v1/Exact/X", "", true},
		{"/v1/exact", "", false},
		{"/v1/other%3Fa%23b", "", false},
		{"/.well-known/x", "", false},
		{"/a%2fb%20c/x;y//z...", "/a%2Fb%20c/x;y//z...", false},
		{"/100%25/%252e%c3%a9", "/100%25/%252e%C3%A9", false},
	} {
		want := c.sent
		if want == "" {
			want = c.path
		}
		replayed := ""
		for range 2 {
			response := exchange(t, addr, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nIdempotency-Key: %d\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", c.path, i), 1000)
			head, body, _ := strings.Cut(response, "\r\n\r\n")
			if !strings.HasPrefix(response, "HTTP/1.1 200 ") || body != want {
				t.Errorf("%s: %q, want %s", c.path, response, want)
			}
			replayed = head
		}
		if strings.Contains(replayed, "Idempotency-Replayed: true") != c.protected {
			t.Errorf("%s: protected is %v", c.path, !c.protected)
		}
	}
	rejected.Store(0)
	for _, path := range []string{
		// Paths that begin with a host name, for some servers.
		"//v1/orders", "//x/v1/orders", "///v1/orders", "///x/v1/orders", "//x:80/v1/orders", "//u:p@x/v1/orders", `/\x/v1/orders`, `\\x/v1/orders`, `/\/x/v1/orders`,
		"/%2Fx/v1/orders", "/%5cx/v1/orders", "/%252Fx/v1/orders", "/.//x/v1/orders", "/a/..//x/v1/orders", "/%2e//x/v1/orders",
		// Paths that are a protected route for one server, and not for another.
		"/v1//orders", "/v1///orders", "/v1/orders//", "/v1%2Forders", "/v1%2forders", "/v1%252Forders", "/v1/%256frders", "/x%2f..%2fv1%2forders", "/x/..%2Fv1/orders",
		`/v1\orders`, `/x\..\v1\orders`, "/v1%5Corders", "/v1/orders;a=b", "/v1;a=b/orders", "/v1/orders%3Ba=b", "/v1/orders;%2F..%2F", "/x/..;/v1/orders",
		"/v1/orders.", "/v1/orders..", "/v1/orders%20", "/v1/orders%20.", "/v1/orders./", "/V1%2FORDERS", "/v1/orders%2F", "/v1/orders/a%2Fb/pay", "/v1/orders//pay", "/v1/orders/7//pay",
		"/v1//tree/x", "/v1/tree/..%2Forders", "/v1/tree/%2e%2e%2forders", "/v1/tree%2Fx", "/v1/orders%3Fa", "/v1/orders%23a", "/v1/orders%253Fa", "/x/..%2F..%2Fy", "/x/..;/y", "/x/%252e%252e%252fy", "/x/..%20/y", "/x%2F.",
		// Paths that are malformed, or encoded again and again.
		"/v1/orders%00", "/v1/orders%2500x", "/v1/%25252525256frders%2525253B%252F", "/v1/orders%", "/v1/orders%2", "/v1/%zzorders", "/v1/orders%0a", "/v1/orders%0D", "/v1/ord%09ers", "/v1/orders%7f",
		"/v1%c0%aforders", "/v1%e0%80%aforders", "/v1/orders\xff", "/v1/orders\xc3\xa9", "/v1%c0%2forders", "/v1/ord\ters", "/v1/ord\x0bers", "/v1/orders#", "/v1/orders#x", "/#/v1/orders", "*", "v1/orders", "http://h/v1/orders", "?/v1/orders",
	} {
		if response := exchange(t, addr, "POST "+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 1000); !strings.HasPrefix(response, "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", path, response)
		}
	}
	if n := rejected.Load(); n > 0 {
		t.Errorf("%d of what was rejected came through", n)
	}
	for path, why := range map[string]string{
		"//x/v1/orders": "begins with two slashes", `/\x/v1/orders`: "has a backslash", "/v1/orders%0A": "an encoded control character", "/v1/orders%c0%af": "not UTF-8", "/v1%2Forders": "ervers may read this path in ways that lead to different routes",
	} {
		if response := exchange(t, addr, "POST "+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 1000); !strings.Contains(response, "request_invalid") || !strings.Contains(response, why) {
			t.Errorf("%q: %q", path, response)
		}
	}
}

func TestPath_APathThatNamesAHostIsRejectedByHTTP2Too(t *testing.T) {
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") }), onlyonce.Config{}, nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: protocols}
	defer h2.CloseIdleConnections()
	for _, path := range []string{"//x/v1/orders", "///x/v1/orders", `/\x/v1/orders`, "//x:80/v1/orders", "//u:p@x/v1/orders"} {
		r := &http.Request{Method: "POST", URL: &url.URL{Scheme: "http", Host: addr, Path: path}, Header: http.Header{}, Body: http.NoBody}
		if strings.Contains(path, `\`) {
			r.URL.Opaque = path // else it would be encoded
		}
		res, err := h2.RoundTrip(r.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		wantProblem(t, res, string(body), 400, "request_invalid", false)
	}
}

func TestPath_AKeyIsRequiredInWhateverCaseAlthoughAllElseIsProtectedToo(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	guard, required := newGuard(onlyonce.Config{}), single
	required.Required = true
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/orders", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/Exact", Upstream: up, Guard: guard, Idempotency: single},
		{Method: "POST", Pattern: "/exact", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/", Upstream: up, Guard: guard, Idempotency: single},
	}, proxy.Config{}))
	for path, status := range map[string]int{
		"/orders": 400, "/Orders": 400, "/orders/": 400, "/ORDERS/": 400, "/./Orders": 400, "/Order%73": 400,
		"/exact": 400, "/Exact": 200, "/other": 200, "/Other/": 200, "/orders/7": 200,
	} {
		if res, body := send(t, "POST", "http://"+addr+path, nil, "x"); res.StatusCode != status || status == 200 && body != path || status == 400 && !strings.Contains(body, "idempotency_key_missing") {
			t.Errorf("%s: %d %q, want %d", path, res.StatusCode, body, status)
		}
	}
}

// TestPath_AKeyIsRequiredInWhateverCaseAPatternIs covers a pattern that is not in lower
// case, and one beside a pattern with a wildcard that a path in another case fits.
func TestPath_AKeyIsRequiredInWhateverCaseAPatternIs(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	guard, required := newGuard(onlyonce.Config{}), single
	required.Required = true
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/api/createPayment", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/payments/capture", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/payments/{id}", Upstream: up, Guard: guard, Idempotency: single},
		{Method: "POST", Pattern: "/free/{id}", Upstream: up},
		{Method: "POST", Pattern: "/", Upstream: up, Guard: guard, Idempotency: single},
	}, proxy.Config{}))
	for path, status := range map[string]int{
		"/api/createPayment": 400, "/api/createpayment": 400, "/api/CREATEPAYMENT": 400, "/api/createpayment/": 400, "/API/CreatePayment/": 400, "/api/create%70ayment": 400,
		"/payments/capture": 400, "/payments/Capture": 400, "/payments/CAPTURE/": 400, "/Payments/capture": 400, "/payments/%43apture": 400,
		"/payments/7": 200, "/payments/X": 200, "/free/x": 200, "/free/X": 200, "/api/other": 200,
	} {
		if res, body := send(t, "POST", "http://"+addr+path, nil, "x"); res.StatusCode != status || status == 400 && !strings.Contains(body, "idempotency_key_missing") {
			t.Errorf("%s: %d %q, want %d", path, res.StatusCode, body, status)
		}
	}
	for _, paths := range [][2]string{{"/api/createPayment", "/api/createpayment"}, {"/payments/capture", "/payments/CAPTURE"}} {
		key := http.Header{"Idempotency-Key": {"key"}}
		send(t, "POST", "http://"+addr+paths[0], key, "x")
		if res, body := send(t, "POST", "http://"+addr+paths[1], key, "x"); res.StatusCode != 422 {
			t.Errorf("one key on %q: %d %q", paths, res.StatusCode, body)
		}
	}
}

// TestPath_ASemicolonThatBeginsAQueryLeadsToNoOtherRoute covers Fastify before version 5.
func TestPath_ASemicolonThatBeginsAQueryLeadsToNoOtherRoute(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	guard, required := newGuard(onlyonce.Config{}), single
	required.Required = true
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/payments", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/", Upstream: up, Guard: guard, Idempotency: single},
	}, proxy.Config{}))
	for path, status := range map[string]int{
		"/payments;/x": 400, "/payments;a=1/x": 400, "/payments/;/x": 400, "/%70ayments;/x/y": 400, "/PAYMENTS;/x": 400, "/payments%3B/x": 400, "/payments;/;/x": 400,
		"/other;/x": 200, "/a;b/c;d": 200,
	} {
		if res, body := send(t, "POST", "http://"+addr+path, nil, "x"); res.StatusCode != status {
			t.Errorf("%s: %d %q, want %d", path, res.StatusCode, body, status)
		}
	}
}

func TestPath_APathBehindAScriptLeadsToNoOtherRoute(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	guard, required := newGuard(onlyonce.Config{}), single
	required.Required = true
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/payments", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/pay.php", Upstream: up, Guard: guard, Idempotency: required},
		{Method: "POST", Pattern: "/shop.php/orders", Upstream: up, Guard: guard, Idempotency: single},
		{Method: "POST", Pattern: "/", Upstream: up, Guard: guard, Idempotency: single},
	}, proxy.Config{}))
	for path, status := range map[string]int{
		"/pay.php/x": 400, "/PAY.PHP/": 400, "/pay.php/x.php/y": 400, "/index.php/a.php/payments": 400, "/a.php/b.php/c.php/payments": 400, "/pay.php/b.php/c.php/d": 400, "/pay%2Ephp/x": 400, "/index.php/payments": 400, "/a/index.php/payments/": 400, "/index.php;x/payments": 400,
		"/shop.php/orders": 200, "/index.php/other": 200, "/other.php": 200, "/payments.phps/x": 200,
	} {
		if res, body := send(t, "POST", "http://"+addr+path, nil, "x"); res.StatusCode != status {
			t.Errorf("%s: %d %q, want %d", path, res.StatusCode, body, status)
		}
	}
}

func TestPath_APathThatMeansTwoProtectedRoutesIsRejected(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })
	guard := newGuard(onlyonce.Config{})
	addr := serve(t, proxy.New([]proxy.Route{
		{Pattern: "/files/{name}", Upstream: up, Guard: guard, Idempotency: single},
		{Pattern: "/pay", Upstream: up, Guard: guard, Idempotency: single},
	}, proxy.Config{}))
	if response := exchange(t, addr, "POST /files/..%2Fpay HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n\r\n", 1000); !strings.HasPrefix(response, "HTTP/1.1 400 ") || !strings.Contains(response, "request_invalid") {
		t.Error(response)
	}
}

func TestPath_WithoutARouteNothingIsSent(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single},
		{Pattern: "api.example/", Upstream: up},
	}, proxy.Config{}))
	for _, request := range []string{"GET /v1/orders", "POST /v1/other", "GET /"} {
		method, path, _ := strings.Cut(request, " ")
		res, body := send(t, method, "http://"+addr+path, nil, "")
		wantProblem(t, res, body, 404, "no_route", false)
	}
}

func TestPath_TwoSpellingsOfAPathAreOneCommand(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	for i, path := range []string{"/v1/orders", "/v1/%6Frders", "/v1/./orders", "/x/%2E%2e/v1/orders"} {
		response := exchange(t, addr, "POST "+path+" HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nConnection: close\r\n\r\n", 1000)
		if !strings.HasPrefix(response, "HTTP/1.1 201 ") || strings.Contains(response, "Replayed") != (i > 0) {
			t.Errorf("%s: %q", path, response)
		}
	}
	for _, path := range []string{"/V1/orders", "/v1/orders/", "/v1/orders?x"} { // which a server may take for another
		response := exchange(t, addr, "POST "+path+" HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nConnection: close\r\n\r\n", 1000)
		if !strings.HasPrefix(response, "HTTP/1.1 422 ") {
			t.Errorf("%s: %q", path, response)
		}
	}
}

func TestPath_AHandlerRoundTheProxyMayChangeThePath(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	addr := serve(t, http.StripPrefix("/api", proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Idempotency: single}, {Pattern: "/", Upstream: up},
	}, proxy.Config{})))
	for _, h := range []http.Header{nil, {"Idempotency-Key": {"k"}}} {
		if _, body := send(t, "POST", "http://"+addr+"/api/v1/orders?a=b", h, "x"); body != "/v1/orders?a=b" {
			t.Errorf("%v: %q", h, body)
		}
	}
}
