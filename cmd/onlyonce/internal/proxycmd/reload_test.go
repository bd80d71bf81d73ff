package proxycmd

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	if err != nil || len(routes) != 1 || (*b.guards.Load())[policyOf(&changed.Defaults)] != routes[0].Guard {
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
	var away atomic.Bool
	publisher := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(document)
	}))
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
	away.Store(true)
	cmdtest.WriteFile(t, roots, right)
	p.look(t.Context())
	if p.look(t.Context()); p.tenants.keys != before {
		t.Error("authorities are in place with which no keys were read")
	}
	away.Store(false)
	p.retryAt = time.Now() // a minute later
	if p.look(t.Context()); p.tenants.keys == before {
		t.Error("authorities that changed while the server of public keys was away are not in place once it is back")
	}
	before = p.tenants.keys
	if p.look(t.Context()); p.tenants.keys != before {
		t.Error("authorities are in place, and were read again")
	}
}

func TestReload_ASettingThatNeedsAStartKeepsItsLine(t *testing.T) {
	f, err := proxyfile.Parse("p.yaml", []byte("listen: 127.0.0.1:1\ntenant: {single: true}\nupstreams: [{url: \"http://127.0.0.1:1\"}]\nstore: {url: \"memory://\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	next := *f
	next.Listen = "127.0.0.1:2"
	kept, names, err := keepUntilRestart(f, &next)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, []string{"listen"}) {
		t.Errorf("%q need a restart", names)
	}
	if m := kept.Mistake("store.url", "is not there"); m.Line != 4 {
		t.Errorf("a later mistake is told of line %d, want 4", m.Line)
	}
}

func TestReload_WhatNeedsAStartChangesNothingElse(t *testing.T) {
	ca := cmdtest.NewAuthority(t)
	ca.Sign("proxy", false)
	secured := proxyfile.ServerTLS{Cert: ca.Path("proxy.crt"), Key: ca.Path("proxy.key"), ClientCA: ca.Path("authority.crt"), MinVersion: "1.2"}
	plain := proxyfile.New().TLS
	settings := func(secure proxyfile.ServerTLS) *proxyfile.File {
		f := proxyfile.New()
		f.Tenant.Header, f.TLS = "X-Tenant", secure
		up := proxyfile.NewUpstream()
		up.URL = "http://127.0.0.1:1"
		f.Upstreams = []proxyfile.Upstream{up}
		return checked(t, f)
	}
	for _, test := range []struct {
		name          string
		first, second proxyfile.ServerTLS
		remote        string
		cert          bool // of the client
	}{
		{"TLS is added", plain, secured, "127.0.0.1:1", false},
		{"TLS is removed", secured, plain, "192.0.2.1:1", true},
	} {
		var logged bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&logged, nil))
		next := settings(test.second)
		b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), logger, nil)
		p, err := newReloadableProxy(t.Context(), settings(test.first), b, func() (*proxyfile.File, error) { return next, nil }, logger)
		if err != nil {
			t.Fatal(err)
		}
		tenant := func() string {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.RemoteAddr = test.remote
			r.Header.Set("X-Tenant", "acme")
			if r.TLS = nil; test.cert {
				r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}, PeerCertificates: []*x509.Certificate{{}}}
			}
			if !b.config(p.file).TrustProtected(r) {
				return ""
			}
			return p.tenants.of(r)
		}
		if got := tenant(); got != "acme" {
			t.Fatalf("%s: before, the tenant is %q", test.name, got)
		}
		for range 2 {
			p.reload(t.Context())
			p.look(t.Context())
			if got := tenant(); got != "acme" || !strings.Contains(logged.String(), "tls.cert") || strings.Contains(logged.String(), "files for TLS have changed") {
				t.Errorf("%s: the tenant is %q; %s", test.name, got, &logged)
			}
			logged.Reset()
		}
		next = settings(test.first)
		if p.reload(t.Context()); tenant() != "acme" || strings.Contains(logged.String(), "tls.cert") {
			t.Errorf("%s, and it is taken back: the tenant is %q; %s", test.name, tenant(), &logged)
		}
	}
}

func TestReload_SettingsForTheNextStartAreCheckedNow(t *testing.T) {
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	f := proxyfile.New()
	f.Tenant.Single = true
	up := proxyfile.NewUpstream()
	up.URL = "http://127.0.0.1:1"
	f.Upstreams = []proxyfile.Upstream{up}
	checked(t, f)
	next := *f
	next.TLS = proxyfile.ServerTLS{Cert: filepath.Join(t.TempDir(), "none.crt"), Key: filepath.Join(t.TempDir(), "none.key")}
	b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), logger, nil)
	p, err := newReloadableProxy(t.Context(), f, b, func() (*proxyfile.File, error) { return &next, nil }, logger)
	if err != nil {
		t.Fatal(err)
	}
	if p.reload(t.Context()); p.file != f || !strings.Contains(logged.String(), "none.crt") {
		t.Errorf("a certificate that is not there: %s", &logged)
	}
}

func TestReload_TheLogNamesOperationsWhoseCommandsWouldRunAgain(t *testing.T) {
	read := func(text string) *proxyfile.File {
		f, err := proxyfile.Parse("p.yaml", []byte("upstreams: [{url: \"http://127.0.0.1:1\"}]\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const tenant = "tenant: {header: X-Tenant}\n"
	first := read(tenant + "routes: [{match: POST /a}, {match: POST /b, operation: b}]\n")
	for text, want := range map[string]string{
		tenant + "routes: [{match: POST /a}, {match: POST /b, operation: b}]\n":                           "",
		tenant + "routes: [{match: POST /b/, operation: b}, {match: POST /a, wait: 1s}]\n":                "",
		tenant + "routes: [{match: \"POST /{x}\", operation: POST /a}, {match: POST /b, operation: b}]\n": "",
		tenant + "routes: [{match: \"POST /{x}\"}, {match: POST /b, operation: b}]\n":                     `operations="[POST /a]"`,
		tenant: `operations="[POST /a b]"`,
		"tenant: {header: X-Org}\nroutes: [{match: POST /a}, {match: POST /b, operation: b}]\n":                        "tenants are identified in another way",
		"tenant: {single: true}\nroutes: [{match: POST /a}, {match: POST /b, operation: b}]\n":                         "tenants are identified in another way",
		"tenant: {header: x-tenant, from: [10.0.0.0/8]}\nroutes: [{match: POST /a}, {match: POST /b, operation: b}]\n": "",
	} {
		var logged bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&logged, nil))
		b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), logger, nil)
		p, err := newReloadableProxy(t.Context(), first, b, func() (*proxyfile.File, error) { return read(text), nil }, logger)
		if err != nil {
			t.Fatal(err)
		}
		p.reload(t.Context())
		if warned := strings.Contains(logged.String(), "level=WARN"); warned != (want != "") || !strings.Contains(logged.String(), want) {
			t.Errorf("%s: want %q; %s", text, want, &logged)
		}
	}
}

func TestReload_GuardsStayWhileTheirSettingsAndTheirShareOfTheCacheDo(t *testing.T) {
	for name, c := range map[string]struct {
		cache proxyfile.Size
		stays bool // the Guard of defaults, when a route brings another
	}{"without a cache": {0, true}, "with a cache": {1 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			b := newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), slog.New(slog.DiscardHandler), nil)
			file := func(wait time.Duration, routes int) *proxyfile.File {
				f := proxyfile.New()
				up := proxyfile.NewUpstream()
				up.URL = "http://127.0.0.1:1"
				f.Tenant.Single, f.Upstreams, f.Store.Cache = true, []proxyfile.Upstream{up}, c.cache
				for range routes {
					r := proxyfile.Route{Match: "POST /slow", Settings: f.Defaults}
					r.Wait = wait
					f.Routes = append(f.Routes, r)
				}
				return checked(t, f)
			}
			p, err := newReloadableProxy(t.Context(), file(0, 0), b, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defaults := policyOf(&p.file.Defaults)
			for _, step := range []struct {
				name   string
				file   *proxyfile.File
				guards int
				stays  bool
			}{
				{"the same settings", file(0, 0), 1, true},
				{"a route with other settings", file(time.Second, 1), 2, c.stays},
				{"the route's settings change", file(time.Minute, 1), 2, true},
				{"the route goes", file(0, 0), 1, c.stays},
			} {
				before := (*b.guards.Load())[defaults]
				if err := p.apply(t.Context(), step.file); err != nil {
					t.Fatal(err)
				}
				now := *b.guards.Load()
				if len(now) != step.guards || now[defaults] == nil || (now[defaults] == before) != step.stays {
					t.Errorf("%s: %d guards, want %d; that of defaults stays: %t, want %t", step.name, len(now), step.guards, now[defaults] == before, step.stays)
				}
			}
		})
	}
}
