package proxy_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestSecurity_AProtectedHeaderIsDroppedUnlessItIsTrusted(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q %q", r.Header["X-Tenant"], r.Header["X-Group"], r.Header["X-Other"])
	})
	var p *proxy.Proxy
	routes := func(tenantHeader string) []proxy.Route {
		idempotency := single
		idempotency.Tenant = func(r *http.Request) string { return r.Header.Get(tenantHeader) }
		return []proxy.Route{{Pattern: "/", Upstream: up, Guard: onlyonce.New(newStore(), onlyonce.Config{}), Idempotency: idempotency}}
	}
	trusts := func(r *http.Request) bool { return r.URL.Path == "/trusted" }
	p = proxy.New(routes("X-Tenant"), proxy.Config{Protected: []string{"x-tenant", "X-Group"}, TrustProtected: trusts})
	addr := serve(t, p)
	ask := func(path string) (status int, body string) {
		h := http.Header{"Idempotency-Key": {"k"}, "X-Tenant": {"a"}, "X-Group": {"b"}, "X-Other": {"c"}}
		res, body := send(t, "POST", "http://"+addr+path, h, "x")
		return res.StatusCode, body
	}
	if status, body := ask("/trusted"); status != 200 || body != `["a"] ["b"] ["c"]` {
		t.Errorf("trusted: %d %s", status, body)
	}
	if status, _ := ask("/"); status != 401 {
		t.Errorf("not trusted, with a key: %d", status)
	}

	// Whether a header is trusted and what it is for are settings of one Reload.
	p.Reload(routes("X-Tenant"), proxy.Config{Protected: []string{"X-Tenant"}, TrustProtected: func(*http.Request) bool {
		p.Reload(routes("X-Other"), proxy.Config{Protected: []string{"X-Other"}})
		return false
	}})
	if status, _ := ask("/"); status != 401 {
		t.Errorf("during a reload: %d", status)
	}
	if status, body := ask("/"); status != 200 || body != `["a"] ["b"] ["c"]` {
		t.Errorf("after it: %d %s", status, body)
	}
}
