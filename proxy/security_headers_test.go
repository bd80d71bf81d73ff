package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
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

func TestSecurity_NoRequestTrailerTakesThePlaceOfAHeaderThatWasChecked(t *testing.T) {
	got := make(chan http.Header, 1)
	addr := orders(t, upstream2(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}), onlyonce.Config{}, func(r *proxy.Route) {
		r.DropHeader, r.SetHeader = []string{"X-Dropped"}, http.Header{"X-Set": {"proxy"}}
	})
	names := []string{
		"idempotency-attempt", "idempotency-fence", "idempotency-key", "idempotency_fence", "x-forwarded-user", "x_real_ip", "cookie",
		"x-tenant", "x_tenant", "x-http-method-override", "x-dropped", "x_set", "x-sum",
	}
	list := strings.Join(names, ",")
	h1 := post11 + "Connection: close\r\nIdempotency-Key: a\r\nTransfer-Encoding: chunked\r\nTrailer: " + list + "\r\n\r\n1\r\nx\r\n0\r\n"
	var fields []string
	for _, name := range names {
		fields = append(fields, name, "1")
		if !strings.HasPrefix(name, "idempotency-") { // which the listener rejects
			h1 += name + ": 1\r\n"
		}
	}
	want := func(version string) {
		t.Helper()
		if trailer := <-got; len(trailer) != 1 || trailer.Get("X-Sum") != "1" {
			t.Errorf("%s: the upstream got the trailers %v", version, trailer)
		}
	}
	exchange(t, addr, h1+"\r\n", 1000)
	want("HTTP/1.1")
	head := http2Fields(":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/v1/orders", "idempotency-key", "b")
	for _, name := range names {
		head = append(head, http2Fields("trailer", name)...)
	}
	sendHTTP2Frames(t, addr, slices.Concat(
		http2Frame(http2Headers, http2EndHeaders, 1, head),
		http2Frame(http2Data, 0, 1, []byte("x")),
		http2Frame(http2Headers, http2EndHeaders|http2EndStream, 1, http2Fields(fields...)),
	))
	want("HTTP/2")
}

// A body in which no key was found has been received, with its trailers.
func TestSecurity_NoRequestTrailerOfARequestWithoutAKeyTakesThePlaceOfAHeader(t *testing.T) {
	got := make(chan http.Header, 1)
	addr := orders(t, upstream2(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}), onlyonce.Config{}, func(r *proxy.Route) { r.KeyPointer = "/id" })
	exchange(t, addr, post11+"Connection: close\r\nTransfer-Encoding: chunked\r\nTrailer: x-forwarded-user, x_tenant, x-sum\r\n\r\n2\r\n{}\r\n0\r\nx-forwarded-user: 1\r\nx_tenant: 1\r\nx-sum: 1\r\n\r\n", 1000)
	if trailer := <-got; len(trailer) != 1 || trailer.Get("X-Sum") != "1" {
		t.Errorf("the upstream got the trailers %v", trailer)
	}
}
