package proxy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// paymentServers charge for every request that they route as POST /payments.
var paymentServers = []struct {
	program string
	args    func(port string) []string
}{
	{"node", func(port string) []string { return []string{"testdata/servers/charges.mjs", port} }},
	{"python3", func(port string) []string { return []string{"testdata/servers/charges.py", port} }},
	{"php", func(port string) []string { return []string{"-S", "127.0.0.1:" + port, "testdata/servers/charges.php"} }},
}

// startPayments starts a server that lasts for the test.
func startPayments(t *testing.T, program string, args func(port string) []string) *proxy.Upstream {
	t.Helper()
	needs.Program(t, program)
	port := testserver.FreePort()
	addr := "127.0.0.1:" + port
	var out strings.Builder
	cmd := exec.Command(program, args(port)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
	t.Cleanup(end)
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return &proxy.Upstream{URL: &url.URL{Scheme: "http", Host: addr}}
		}
		if time.Now().After(until) {
			end()
			t.Fatalf("%s does not listen: %v\n%s", program, err, &out)
		}
	}
}

// TestRealServers_NoRequestWithoutAKeyIsCharged sends what a server in another language takes
// for POST /payments, to a proxy that asks for a key there.
func TestRealServers_NoRequestWithoutAKeyIsCharged(t *testing.T) {
	t.Parallel()
	guard := newGuard(onlyonce.Config{HoldUnknown: true})
	for _, s := range paymentServers {
		t.Run(s.program, func(t *testing.T) {
			up := startPayments(t, s.program, s.args)
			addr := serve(t, proxy.New([]proxy.Route{
				{Method: "POST", Pattern: "/payments", Upstream: up, Guard: guard, Idempotency: httponce.Config{Tenant: httponce.SingleTenant, Required: true}},
				{Pattern: "/", Upstream: up, Guard: guard, Idempotency: single, DropHeader: []string{"X-Internal"}},
			}, proxy.Config{}))
			ask := func(line, headers string) string {
				return exchange(t, addr, line+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n"+headers+"\r\n", 1000)
			}
			for _, path := range []string{
				"//x/payments", "///x/payments", `/\x/payments`, "//x:80/payments", "//u:p@x/payments", `\\x/payments`, "/%2Fx/payments", "/%5Cx/payments", "/.//x/payments",
				"/payments", "/payments/", "/%70ayments", "/./payments", "/x/../payments", "/x/%2e%2e/payments", "/payments/.", "/%2Fpayments", "/payments%2F", "/x%2F..%2Fpayments",
				"/pay\tments", "/payments%0A", "/PAYMENTS", "/payments?x", "/payments#x", "/?/payments", "http://h/payments", "/:80/payments", "/payments:80", "/x:80/payments", "/payments%3Fx", "/payments%23x", "/payments%253Fx", "/x/..%2Fpayments",
			} {
				if response := ask("POST "+path, ""); strings.Contains(response, "charged") {
					t.Errorf("POST %s: %q", path, response)
				}
			}
			for _, name := range []string{
				"X-HTTP-Method-Override", "X_HTTP_Method_Override", "x_http-method.override", "X.HTTP.METHOD.OVERRIDE", "X-Http_Method-Override", "X!Http~Method|Override",
			} {
				if response := ask("GET /payments", name+": POST\r\n"); !strings.Contains(response, "nothing") {
					t.Errorf("GET /payments with %s: %q", name, response)
				}
			}
			for _, name := range []string{"X-Original-URL", "X_Original_Url", "X-Rewrite-URL", "X.Rewrite.Url", "X-Original_URL"} {
				if response := ask("POST /x", name+": /payments\r\n"); !strings.Contains(response, "nothing") {
					t.Errorf("POST /x with %s: %q", name, response)
				}
			}
			for _, name := range []string{"SCRIPT_NAME", "Script-Name", "script.name"} {
				if response := ask("POST /x/payments", name+": /x\r\n"); !strings.Contains(response, "nothing") {
					t.Errorf("POST /x/payments with %s: %q", name, response)
				}
			}
			for i, path := range []string{"/payments", "/x/../%70ayments"} { // else nothing was tried
				if response := ask("POST "+path, fmt.Sprintf("Idempotency-Key: %s%d\r\n", s.program, i)); !strings.Contains(response, "charged") {
					t.Errorf("POST %s with a key: %q", path, response)
				}
			}
		})
	}
}

func TestRealServers_OverridesAreSentOnWhereARouteKeepsThem(t *testing.T) {
	got := make(chan http.Header, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	for _, keep := range []bool{false, true} {
		addr := serve(t, proxy.New([]proxy.Route{{Pattern: "/", Upstream: up, KeepOverrides: keep}}, proxy.Config{}))
		send(t, "POST", "http://"+addr+"/x", http.Header{"X-Http-Method-Override": {"PUT"}, "X_http_method_override": {"PATCH"}, "X-Original-Url": {"/y"}}, "")
		h := <-got
		if (h.Get("X-Http-Method-Override") == "PUT") != keep || (h.Get("X-Original-Url") == "/y") != keep || len(h["X_http_method_override"]) > 0 {
			t.Errorf("kept %v: %v", keep, h)
		}
	}
}

func TestRealServers_WhatIsDroppedIsDroppedInEverySpelling(t *testing.T) {
	got := make(chan http.Header, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
	addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency.Header = "X-Request-Key"
		r.Idempotency.FingerprintHeaders = []string{"x-account"}
		r.DropHeader = []string{"x-internal"}
		r.SetHeader = http.Header{"X-Served-By": {"proxy"}}
	})
	for _, key := range []string{"X-Request-Key: k\r\n", ""} {
		raw := post11 + key + "Connection: close\r\nContent-Length: 0\r\n"
		for _, name := range []string{"X-Internal", "X-Served-By", "X-Request-Key", "X-Account", "X-Tenant", "Idempotency-Attempt", "Idempotency-Fence", "Idempotency-Replayed", "Content-Type", "Content-Length", "Authorization", "Cookie"} {
			for _, c := range "_.!~" {
				raw += strings.ReplaceAll(name, "-", string(c)) + "~: theirs\r\n" + strings.ReplaceAll(name, "-", string(c)) + ": theirs\r\n" + strings.Replace(name, "-", string(c), 1) + ": theirs\r\n"
			}
		}
		raw = strings.ReplaceAll(raw, "Authorization: theirs\r\n", "")
		raw = strings.ReplaceAll(raw, "Cookie: theirs\r\n", "")
		exchange(t, addr, raw+"X-Internal: theirs\r\nX_own: mine\r\n\r\n", 10_000)
		h := <-got
		for name, vs := range h {
			if strings.Contains(fmt.Sprint(vs), "theirs") && !strings.HasSuffix(name, "~") {
				t.Errorf("key %q: %s is sent", key, name)
			}
		}
		if h.Get("X-Served-By") != "proxy" || len(h["X_own"]) == 0 {
			t.Errorf("key %q: %v", key, h)
		}
	}
}
