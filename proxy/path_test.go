package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// TestNoSpellingOfAPathGoesRoundItsRoute sends each with a key, once as it is and
// once again: what is protected is replayed, and what is sent on is as it came.
func TestNoSpellingOfAPathGoesRoundItsRoute(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	guard := newGuard(onlyonce.Config{})
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: guard, Once: single},
		{Method: "POST", Pattern: "/v1/orders/{id}/pay", Upstream: up, Guard: guard, Once: single},
		{Method: "POST", Pattern: "/v1/tree/", Upstream: up, Guard: guard, Once: single},
		{Method: "POST", Pattern: "/v1/Exact/{Name}", Upstream: up, Guard: guard, Once: single},
		{Pattern: "/", Upstream: up},
	}, proxy.Config{}))
	for i, c := range []struct {
		path      string
		protected bool
	}{
		{"/v1/orders", true},
		{"//v1/orders", true},
		{"/v1//orders", true},
		{"///v1///orders", true},
		{"/x/../v1/orders", true},
		{"/v1/./orders", true},
		{"/v1/orders/.", true},
		{"/v1/orders/x/..", true},
		{"/../../v1/orders", true},
		{"/v1/orders/", true},
		{"/v1/orders//", true},
		{"/v1/%6frders", true},
		{"/%76%31/orders", true},
		{"/v1%2Forders", true},
		{"/v1%2forders", true},
		{"/v1%252Forders", true},
		{"/v1/%256frders", true},
		{"/x/%2e%2e/v1/orders", true},
		{"/x%2f..%2fv1%2forders", true},
		{"/x/.%2E/v1/orders", true},
		{`/v1\orders`, true},
		{`/x\..\v1\orders`, true},
		{"/v1%5Corders", true},
		{"/v1/orders;a=b", true},
		{"/v1;a=b/orders", true},
		{"/v1/orders%3Ba=b", true},
		{"/v1/orders?a=b", true},
		{"/v1/orders/7/pay", true},
		{"/v1/orders/a%2Fb/pay", true},
		{"/v1/orders/7//pay", true},
		{"/v1/orders/7/pay/", true},
		{"/v1/tree/a/b", true},
		{"/v1/tree", true},
		{"/v1//tree", true},
		{"/v1/orders/7", false},
		{"/v1/Orders", true},
		{"/V1/ORDERS/", true},
		{"/V1/%4fRDERS/7/Pay", true},
		{"/V1//Tree/A", true},
		{"/v1/exact/X", true},
		{"/v1/Exact/X", true},
		{"/v1/exact", false},
		{"/v1/orders%3Fa", false},
		{"/v2/../v3//orders", false},
		{"/a%2Fb%20c/./d;e", false},
	} {
		h := http.Header{"Idempotency-Key": {fmt.Sprint(i)}}
		replayed := ""
		for range 2 {
			answer := exchange(t, addr, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nIdempotency-Key: %s\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", c.path, h.Get("Idempotency-Key")), 1000)
			head, body, _ := strings.Cut(answer, "\r\n\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 200 ") || body != c.path {
				t.Errorf("%s: %q", c.path, answer)
			}
			replayed = head
		}
		if strings.Contains(replayed, "Idempotency-Replayed: true") != c.protected {
			t.Errorf("%s: protected is %v", c.path, !c.protected)
		}
	}
	for _, path := range []string{"/v1/orders%00", "/v1/orders%2500x", "/v1/%25252525256frders"} {
		if answer := exchange(t, addr, "POST "+path+" HTTP/1.1\r\nHost: h\r\n\r\n", 1000); !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			t.Errorf("%s: %q", path, answer)
		}
	}
}

func TestAKeyIsRequiredInWhateverCaseAlthoughAllElseIsProtectedToo(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	guard, required := newGuard(onlyonce.Config{}), single
	required.Required = true
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/orders", Upstream: up, Guard: guard, Once: required},
		{Method: "POST", Pattern: "/Exact", Upstream: up, Guard: guard, Once: single},
		{Method: "POST", Pattern: "/exact", Upstream: up, Guard: guard, Once: required},
		{Method: "POST", Pattern: "/", Upstream: up, Guard: guard, Once: single},
	}, proxy.Config{}))
	for path, status := range map[string]int{
		"/orders": 400, "/Orders": 400, "/orders/": 400, "/ORDERS/": 400, "//Orders": 400, "/Order%73": 400,
		"/exact": 400, "/Exact": 200, "/other": 200, "/Other/": 200, "/orders/7": 200,
	} {
		if res, body := send(t, "POST", "http://"+addr+path, nil, "x"); res.StatusCode != status || status == 200 && body != path {
			t.Errorf("%s: %d %q, want %d", path, res.StatusCode, body, status)
		}
	}
}

func TestAPathThatMeansTwoProtectedRoutesIsRefused(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })
	guard := newGuard(onlyonce.Config{})
	addr := serve(t, proxy.New([]proxy.Route{
		{Pattern: "/files/{name}", Upstream: up, Guard: guard, Once: single},
		{Pattern: "/pay", Upstream: up, Guard: guard, Once: single},
	}, proxy.Config{}))
	if answer := exchange(t, addr, "POST /files/..%2Fpay HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n\r\n", 1000); !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "request_invalid") {
		t.Error(answer)
	}
}

func TestWithoutARouteNothingIsSent(t *testing.T) {
	up := upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })
	addr := serve(t, proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Once: single},
		{Pattern: "api.example/", Upstream: up},
	}, proxy.Config{}))
	for _, request := range []string{"GET /v1/orders", "POST /v1/other", "GET /"} {
		method, path, _ := strings.Cut(request, " ")
		res, body := send(t, method, "http://"+addr+path, nil, "")
		wantProblem(t, res, body, 404, "no_route", false)
	}
}

func TestOneKeyForTwoSpellingsOfAPathIsAMismatch(t *testing.T) {
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) {}), onlyonce.Config{}, nil)
	h := http.Header{"Idempotency-Key": {"k"}}
	send(t, "POST", "http://"+addr+"/v1/orders", h, "x")
	res, body := send(t, "POST", "http://"+addr+"//v1/orders", h, "x")
	wantProblem(t, res, body, 422, "idempotency_key_reused", false)
}

func TestAHandlerRoundTheProxyMayChangeThePath(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	addr := serve(t, http.StripPrefix("/api", proxy.New([]proxy.Route{
		{Method: "POST", Pattern: "/v1/orders", Upstream: up, Guard: newGuard(onlyonce.Config{}), Once: single}, {Pattern: "/", Upstream: up},
	}, proxy.Config{})))
	for _, h := range []http.Header{nil, {"Idempotency-Key": {"k"}}} {
		if _, body := send(t, "POST", "http://"+addr+"/api/v1/orders?a=b", h, "x"); body != "/v1/orders?a=b" {
			t.Errorf("%v: %q", h, body)
		}
	}
}
