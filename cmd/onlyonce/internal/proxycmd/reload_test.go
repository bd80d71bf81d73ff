package proxycmd

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// checked returns a file of settings that is right, as Parse would.
func checked(t *testing.T, f *proxyfile.File) *proxyfile.File {
	t.Helper()
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestReload_FilesForTLSThatHaveNotChangedAreNotPutInPlaceAgain(t *testing.T) {
	ca := cmdtest.NewAuthority(t)
	ca.Sign("proxy", false)
	f := proxyfile.New()
	f.Tenant.Single, f.TLS.Cert, f.TLS.Key = true, ca.Path("proxy.crt"), ca.Path("proxy.key")
	up := proxyfile.NewUpstream()
	up.URL = "https://127.0.0.1:1"
	up.TLS.CA = ca.Path("authority.crt")
	f.Upstreams = []proxyfile.Upstream{up}
	b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.DiscardHandler), nil)
	p, err := newReloadableProxy(t.Context(), checked(t, f), b, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "proxy.crt", "proxy.key", "authority.crt"} {
		if name != "" {
			cmdtest.WriteFile(t, ca.Path(name), "not right")
			if digest(tlsFiles(f)...) == p.files {
				t.Errorf("that %s has changed is not seen", name)
			}
			if err := p.apply(t.Context(), f); err == nil {
				t.Errorf("a %s that is not right is put in place", name)
			}
		}
		if digest(tlsFiles(f)...) != p.files {
			t.Errorf("%q has changed, though nobody changed it since", name)
		}
	}
}

func TestReload_AnUpstreamThatStaysKeepsItsConnections(t *testing.T) {
	f := proxyfile.New()
	one, two := proxyfile.NewUpstream(), proxyfile.NewUpstream()
	one.URL, two.Name, two.URL = "http://127.0.0.1:1", "two", "http://127.0.0.1:2"
	f.Tenant.Single, f.Upstreams = true, []proxyfile.Upstream{one, two}
	b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.DiscardHandler), nil)
	p, err := newReloadableProxy(t.Context(), checked(t, f), b, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	before := b.upstreams
	changed := *f
	two.Timeouts.Response *= 2
	changed.Upstreams = []proxyfile.Upstream{one, two}
	if err := p.apply(t.Context(), checked(t, &changed)); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for key, up := range b.upstreams {
		if before[key] == up {
			kept++
		}
	}
	if len(b.upstreams) != 2 || kept != 1 {
		t.Errorf("%d upstreams, of which %d are as before; want 2 and 1", len(b.upstreams), kept)
	}
	routes, _, err := b.build(&changed, tenantResolver{of: func(*http.Request) string { return "" }})
	if err != nil || len(routes) != 1 || b.guard(&changed.Defaults) != routes[0].Guard {
		t.Errorf("%d routes, %v; the next settings do not know the waiters", len(routes), err)
	}
}

func TestReload_TheAuthoritiesOfTheServerOfPublicKeysAreReadAgainWhenTheyChange(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	publisher := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) }))
	defer publisher.Close()
	publisher.Config.ErrorLog = log.New(io.Discard, "", 0)
	roots := filepath.Join(t.TempDir(), "ca.crt")
	right := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: publisher.Certificate().Raw}))
	cmdtest.WriteFile(t, roots, right)
	f := proxyfile.New()
	f.Tenant.JWT.Claim, f.Tenant.JWT.JWKS, f.Tenant.JWT.CA = "sub", publisher.URL, roots
	up := proxyfile.NewUpstream()
	up.URL = "http://127.0.0.1:1"
	f.Upstreams = []proxyfile.Upstream{up}
	p, err := newReloadableProxy(t.Context(), checked(t, f), newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.DiscardHandler), nil), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.tenants.stop() }()
	other := cmdtest.NewAuthority(t)
	text, err := os.ReadFile(other.Path("authority.crt"))
	if err != nil {
		t.Fatal(err)
	}
	before := p.tenants.keys
	cmdtest.WriteFile(t, roots, string(text))
	if err := p.apply(t.Context(), f); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a server whose authority is believed no longer is asked for public keys: %v", err)
	}
	cmdtest.WriteFile(t, roots, right+string(text))
	if err := p.apply(t.Context(), f); err != nil || p.tenants.keys == before {
		t.Errorf("authorities that have changed were not read again: %v", err)
	}
	before = p.tenants.keys
	if err := p.apply(t.Context(), f); err != nil || p.tenants.keys != before {
		t.Errorf("authorities that have not changed were read again: %v", err)
	}
}

func TestReload_ASettingThatNeedsAStartKeepsItsLine(t *testing.T) {
	f, err := proxyfile.Parse("p.yaml", []byte("listen: 127.0.0.1:1\ntenant: {single: true}\nupstreams: [{url: \"http://127.0.0.1:1\"}]\nstore: {url: \"memory://\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	next := *f
	next.Listen = "127.0.0.1:2"
	if m := keepFixed(f, &next).Mistake("store.url", "is not there"); m.Line != 4 {
		t.Errorf("a later mistake is told of line %d, want 4", m.Line)
	}
}
