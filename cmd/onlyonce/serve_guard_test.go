package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// sendRaw sends bytes to a server, and returns the status of the first response.
func sendRaw(t *testing.T, s *served, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestServe_APathThatIsNotInItsShortestFormIsNotRedirected(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	for path, want := range map[string]int{
		"/orders": 200, "//orders": 404, "/./orders": 404, "/x/../orders": 404, "/orders/": 404, "/orders//": 404,
		"/api//v1/items": 404, "//v1/sandboxes": 404, "/healthz": 200, "//healthz": 404,
	} {
		if got := sendRaw(t, s, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

func TestServe_AServerForThisMachineRejectsPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--allow-host", "api.example.com")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	secret := sha256.Sum256([]byte("token"))
	tokens := filepath.Join(t.TempDir(), "tokens")
	cmdtest.WriteFile(t, tokens, "ada "+hex.EncodeToString(secret[:])+"\n")
	withTokens := startServe(t, t.TempDir(), "--tokens", tokens)
	for _, c := range []struct {
		host, origin string
		rejected     bool
	}{
		{"127.0.0.1:" + port, "", false},
		{"localhost", "", false},
		{"LOCALHOST.:1", "", false},
		{"[::1]:" + port, "", false},
		{"127.3.2.1", "", false},
		{"api.example.com", "", false},
		{"API.example.com:443", "https://api.example.com", false},
		{"127.0.0.1:" + port, "http://localhost:3000", false},
		{"evil.example", "", true},
		{"evil.example:" + port, "http://evil.example:" + port, true},
		{"localhost.evil.example", "", true},
		{"127.0.0.1.evil.example", "", true},
		{"127.0.0.1:" + port, "http://evil.example", true},
		{"127.0.0.1:" + port, "null", true},
		{"10.0.0.1", "", true},
		{"", "", true},
	} {
		for _, path := range []string{"/api/v1/items", "/orders", "/v1/sandboxes", "/metrics", "/readyz"} {
			request := "GET " + path + " HTTP/1.1\r\nHost: " + c.host + "\r\n"
			if c.origin != "" {
				request += "Origin: " + c.origin + "\r\n"
			}
			got := sendRaw(t, s, request+"\r\n")
			if (got == http.StatusMisdirectedRequest || got == http.StatusForbidden || got == http.StatusBadRequest) != c.rejected {
				t.Errorf("%s, Host %q, Origin %q: %d", path, c.host, c.origin, got)
			}
		}
	}
	if got := sendRaw(t, withTokens, "GET /api/v1/items HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer token\r\n\r\n"); got != 200 {
		t.Errorf("with a token, which no page of another site has: %d", got)
	}
}

func TestServe_AForeignHostOrOriginIsRejectedInTheFormOfTheAPI(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	for path, want := range map[string]struct{ kind, body string }{
		"/api/v1/items":    {"application/json", `"error_code":"CROSS_ORIGIN"`},
		"/v1/sandboxes/x":  {"application/json", `{"error":{"code":"forbidden",`},
		"/orders":          {"application/problem+json", `"code":"cross_origin"`},
		"/ordersandothers": {"text/plain; charset=utf-8", ""},
		"/readyz":          {"text/plain; charset=utf-8", ""},
	} {
		r, err := http.NewRequest(http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 403 || res.Header.Get("Content-Type") != want.kind || !strings.Contains(string(body), want.body) || !strings.Contains(string(body), "--allow-host NAME") {
			t.Errorf("%s: %d %v %s", path, res.StatusCode, res.Header, body)
		}
	}
}

func TestServe_TheAdminAddressTakesTheNamesThatServeAllows(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--admin", "127.0.0.1:0", "--allow-host", "Ops.example.com")
	admin := s.at(s.adminURL(t))
	for host, want := range map[string]int{"ops.example.com": 200, "localhost": 200, "evil.example": 403} {
		if got := sendRaw(t, admin, "GET /metrics HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); got != want {
			t.Errorf("Host %s: %d", host, got)
		}
	}
}

func TestServe_RejectsARequestThatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	body := `{"sku":"S-1","title":"a","status":"active"}`
	request := "POST /api/v1/items HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n"
	if got := sendRaw(t, s, request+fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), len(body), body)); got != 400 {
		t.Errorf("with both Content-Length and Transfer-Encoding: %d", got)
	}
	if got := sendRaw(t, s, request+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)); got != 201 {
		t.Errorf("with a Content-Length: %d", got)
	}
}

func TestServe_ServesHealthAndMetricsOnAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--admin", "127.0.0.1:0")
	admin := s.at(s.adminURL(t))
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/orders": 404} {
		if got := admin.probe(path); got.status != want {
			t.Errorf("%s on the admin address: %d", path, got.status)
		}
	}
	for _, path := range []string{"/readyz", "/metrics", "/healthz"} {
		if got := s.get(path); got.status != 404 {
			t.Errorf("%s on the public address: %d", path, got.status)
		}
	}
}
