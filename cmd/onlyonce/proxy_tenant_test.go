package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestSecurity_ATenantHeaderIsAcceptedOnlyFromTrustedSenders(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--tenant-header", "X-Tenant-ID")
	for _, header := range [][]string{
		nil,
		{"X-Tenant-ID", ""},
		{"X-Tenant-ID", "alice, bob"},
		{"X-Tenant-ID", strings.Repeat("a", 512+1)},
		{"X-Tenant-ID", "\xff"},
		{"X_Tenant_ID", "alice"},
	} {
		if got := s.send("k", "a", header...); got.status != 401 || !strings.Contains(got.body, "tenant_missing") {
			t.Errorf("%.40q: %+v", header, got)
		}
	}
	alice, bob := s.send("k", "a", "X-Tenant-ID", "alice"), s.send("k", "a", "X-Tenant-ID", "bob")
	if alice.status != 201 || bob.status != 201 || alice.body == bob.body {
		t.Errorf("alice %+v, bob %+v", alice, bob)
	}
	if got := s.send("k", "a", "X-Tenant-ID", "alice"); got.body != alice.body || up.runs() != 2 {
		t.Errorf("alice again: %+v", got)
	}
	if got := s.send("k", "a", "X-Tenant-ID", "alice", "Connection", "X-Tenant-ID"); got.status != 400 {
		t.Errorf("Connection names the header: %+v", got)
	}

	s = startProxy(t, up.URL, "--tenant-header", "X-Tenant-ID", "--tenant-header-from", "10.0.0.0/8,192.0.2.1")
	if got := s.send("k", "a", "X-Tenant-ID", "alice"); got.status != 401 {
		t.Errorf("from an address that may not: %+v", got)
	}
	if got := s.get("/", "X-Tenant-ID", "alice"); got.body != `GET / tenant="" for="127.0.0.1"` {
		t.Errorf("it is passed on: %+v", got)
	}
	s.logs(t, "a tenant header was dropped: if it came from your gateway, add the gateway's address")
	if text := s.log.String(); strings.Count(text, "was dropped") != 1 || strings.Contains(text, "alice") {
		t.Errorf("log:\n%s", text)
	}
}

func TestProxy_WhatAClientSaysOfOthersIsBelievedOnlyOfProxies(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	for text, want := range map[string]string{
		"":                                    `for="127.0.0.1"`,
		"forwarded: {trust: [127.0.0.0/8]}\n": `for="192.0.2.7, 127.0.0.1"`,
		"forwarded: {trust: [10.0.0.0/8]}\n":  `for="127.0.0.1"`,
	} {
		s, _ := startProxyFile(t, up.URL, plainFile+text)
		if got := s.get("/", "X-Forwarded-For", "192.0.2.7"); !strings.HasSuffix(got.body, want) {
			t.Errorf("%q: %s", text, got.body)
		}
	}
}

func TestProxy_IdentityHeadersArePassedOnFromTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	for text, passed := range map[string]bool{"": false, "forwarded: {trust: [127.0.0.0/8]}\n": true, "forwarded: {trust: [10.0.0.0/8]}\n": false} {
		s, _ := startProxyFile(t, up.URL, plainFile+text)
		names := []string{
			"X-Real-Ip", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Client-Cert", "X-Forwarded-Prefix", "X-Forwarded-Port", "Remote-User", "X-Remote-User", "X-Auth-Request-User",
			"X-Client-Cert", "X-Ssl-Client-S-Dn", "X-Arr-Clientcert", "X-Appgw-Client-Cert", "Wl-Proxy-Client-Cert", "Oidc-Claim-Sub", "X-Goog-Iap-Jwt-Assertion", "X-Userinfo", "X-Vouch-User",
			"X-Auth-User", "X-Azure-Clientip", "X-Vercel-Forwarded-For", "Do-Connecting-Ip", "Front-End-Https", "X-Scheme", "X-Forwarded", "X-Appengine-User-Ip",
		}
		var header []string
		for _, name := range names {
			header = append(header, name, "admin")
		}
		for _, key := range []string{"", "k"} {
			if key != "" {
				header = append(header, "Idempotency-Key", key)
			}
			s.do("POST", "/things", "a", header...)
			for _, name := range names {
				if sent := up.last().Header.Get(name); (sent == "admin") != passed {
					t.Errorf("%q, key %q: %s is sent as %q", text, key, name, sent)
				}
			}
		}
	}
}

func TestProxy_AnIdentityHeaderCanNameTheTenant(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--tenant-header", "X-Auth-Request-User")
	if got := s.send("k", "a", "X-Auth-Request-User", "alice", "X-Auth-Request-Email", "alice@example.com"); got.status != 201 {
		t.Errorf("%+v", got)
	}
	if h := up.last().Header; h.Get("X-Auth-Request-User") != "alice" || h.Get("X-Auth-Request-Email") != "" {
		t.Error(h)
	}
}

func TestSecurity_AnotherAuthorizationIsAnotherTenant(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s := startProxy(t, up.URL, "--tenant-authorization")
	if got := s.send("k", "a"); got.status != 401 {
		t.Errorf("without one: %+v", got)
	}
	one, two := s.send("k", "a", "Authorization", "Bearer one"), s.send("k", "a", "Authorization", "Bearer two")
	again := s.send("k", "a", "Authorization", "Bearer one")
	if one.status != 201 || two.status != 201 || one.body == two.body || again.body != one.body {
		t.Errorf("%+v, %+v, %+v", one, two, again)
	}
	if up.last().Header.Get("Authorization") != "Bearer two" {
		t.Error("the upstream did not get the header")
	}
}

// An issuer signs tokens and publishes its keys in a file.
type issuer struct {
	key  *ecdsa.PrivateKey
	id   string
	path string
}

func (i *issuer) publish(t *testing.T, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.key, i.id = key, id
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: id, Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.WriteFile(t, i.path, string(text))
}

func (i *issuer) token(t *testing.T, org, audience string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, (&jose.SignerOptions{}).WithHeader("kid", i.id))
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(map[string]any{
		"org": org, "aud": audience, "iss": "https://id/", "exp": time.Now().Add(time.Hour).Unix(),
	}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + token
}

func TestSecurity_TheTenantIsAClaimOfAVerifiedToken(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	id := &issuer{path: filepath.Join(t.TempDir(), "jwks.json")}
	id.publish(t, "one")
	s := startProxy(t, up.URL, "--tenant-claim", "org", "--jwks", id.path, "--issuer", "https://id/", "--audience", "api")
	acme := id.token(t, "acme", "api")
	first, again, other := s.send("k", "a", "Authorization", acme), s.send("k", "a", "Authorization", id.token(t, "acme", "api")), s.send("k", "a", "Authorization", id.token(t, "other", "api"))
	if first.status != 201 || again.body != first.body || other.status != 201 || other.body == first.body {
		t.Errorf("%+v, %+v, %+v", first, again, other)
	}
	for name, token := range map[string]string{"forged": acme[:len(acme)-4] + "AAAA", "another audience": id.token(t, "acme", "else")} {
		if got := s.send("k", "a", "Authorization", token); got.status != 401 || got.header.Get("WWW-Authenticate") != `Bearer error="invalid_token"` {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, header := range [][]string{nil, {"Authorization", "Basic YTpi"}} {
		if got := s.send("k", "a", header...); got.status != 401 || got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("with %v: %+v", header, got)
		}
	}
	if got := s.get("/"); got.status != 200 {
		t.Errorf("a request without a key needs a token: %+v", got)
	}

	id.publish(t, "two")
	s.signal(syscall.SIGHUP)
	s.logs(t, "the settings were read again and are in place")
	if got := s.send("k", "a", "Authorization", id.token(t, "acme", "api")); got.body != first.body {
		t.Errorf("with the new key: %+v", got)
	}
	if got := s.send("k", "a", "Authorization", acme); got.status != 401 {
		t.Errorf("with the key that was taken away: %+v", got)
	}
}

func TestProxy_AnAddressBringsOnlySoManyInventedTenants(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
tenant: {authorization: true, new_per_address: 5}
upstreams: [{url: UP}]
`)
	post := func(i int) answer {
		return s.do("POST", "/things", "x", "Idempotency-Key", "k", "Authorization", fmt.Sprint("Bearer invented-", i))
	}
	for i := range 5 {
		if got := post(i); got.status != 201 {
			t.Errorf("tenant %d gets %d %s", i, got.status, got.body)
		}
	}
	for i := 5; i < 10; i++ {
		if got := post(i); got.status != 429 || got.header.Get("Retry-After") == "" {
			t.Errorf("tenant %d gets %d %s, %v", i, got.status, got.body, got.header)
		}
	}
	if got := post(0); got.status != 201 || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("a tenant that is known gets %d %s", got.status, got.body)
	}
	if got := s.do("POST", "/things", "x", "Authorization", "Bearer invented-10"); got.status != 201 {
		t.Errorf("a request without a key gets %d", got.status)
	}
	if up.runs() != 6 {
		t.Errorf("%d runs", up.runs())
	}
	s.logs(t, "tenant.new_per_address")
}
