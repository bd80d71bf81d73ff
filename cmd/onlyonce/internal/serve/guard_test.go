package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/server"
)

func TestGuard_MetricsAreForThisMachineAndForCallersWithAToken(t *testing.T) {
	t.Parallel()
	secret := sha256.Sum256([]byte("token"))
	tokens, err := readTokens("", nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	cmdtest.WriteFile(t, path, "ada "+hex.EncodeToString(secret[:])+"\n")
	named, err := readTokens(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from string
		header     http.Header
		tokens     bool
		want       int
	}{
		{"a page by a name that points here", "127.0.0.1:1", http.Header{"Host": {"page.example:8080"}}, true, 403},
		{"a page of another site", "127.0.0.1:1", http.Header{"Origin": {"http://page.example"}}, true, 403},
		{"this machine by its name", "127.0.0.1:1", http.Header{"Host": {"here.example:8080"}}, true, 200},
		{"this machine by another name with a token", "127.0.0.1:1", http.Header{"Host": {"there.example"}, "Authorization": {"Bearer token"}}, true, 200},
		{"this machine", "127.0.0.1:1", nil, false, 200},
		{"this machine, IPv6", "[::1]:1", nil, true, 200},
		{"a proxy on this machine", "127.0.0.1:1", http.Header{"X-Forwarded-For": {"10.0.0.1"}}, false, 403},
		{"a proxy on this machine", "127.0.0.1:1", http.Header{"Forwarded": {"for=10.0.0.1"}}, false, 403},
		{"a proxy on this machine that names the client in another header", "127.0.0.1:1", http.Header{"X-Real-Ip": {"10.0.0.1"}}, false, 403},
		{"a proxy on this machine that names itself", "127.0.0.1:1", http.Header{"Via": {"1.1 proxy"}}, false, 403},
		{"a proxy on this machine that names the host", "127.0.0.1:1", http.Header{"X-Forwarded-Host": {"a.example"}}, false, 403},
		{"a proxy on this machine that names no client", "127.0.0.1:1", http.Header{"X-Forwarded-For": {""}}, false, 403},
		{"a proxy on this machine behind others", "127.0.0.1:1", http.Header{"True-Client-Ip": {"10.0.0.1"}}, false, 403},
		{"a proxy on this machine with a token", "127.0.0.1:1", http.Header{"X-Real-Ip": {"10.0.0.1"}, "Authorization": {"Bearer token"}}, true, 200},
		{"another machine", "10.0.0.1:1", nil, false, 403},
		{"another machine with a token", "10.0.0.1:1", http.Header{"Authorization": {"Bearer token"}}, true, 200},
		{"another machine with a wrong one", "10.0.0.1:1", http.Header{"Authorization": {"Bearer tokem"}}, true, 403},
	} {
		a := &app{tokens: tokens, metrics: metrics.New(), health: &server.Health{}, hosts: []string{"here.example"}}
		if c.tokens {
			a.tokens = named
		}
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.RemoteAddr, r.Host = c.from, "localhost:8080"
		for name, values := range c.header {
			if name == "Host" {
				r.Host = values[0]
			}
			r.Header[name] = values
		}
		w := httptest.NewRecorder()
		a.forOperators(a.metrics.Handler()).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d", c.name, w.Code)
		}
	}
}
