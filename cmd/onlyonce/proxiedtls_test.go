package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// An authority signs certificates, which it writes to files in its folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("authority", true)
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(name string, isAuthority bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name},
		BasicConstraintsValid: true, IsCA: isAuthority, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	cmdtest.WriteFile(a.t, a.path(name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	cmdtest.WriteFile(a.t, a.path(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// client trusts the authority, and shows the certificate of a name if one is
// given. Every request is a connection of its own.
func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	cfg := &tls.Config{RootCAs: a.pool()}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(a.path(name+".crt"), a.path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
}

// shown returns the name in the certificate that a server shows.
func (a *authority) shown(client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	return resp.TLS.PeerCertificates[0].Subject.CommonName
}

func TestSecurity23ClientsSpeakTLSAndShowTheirCertificate(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	ca, others := newAuthority(t), newAuthority(t)
	ca.sign("proxy", false)
	ca.sign("alice", false)
	others.sign("mallory", false)
	s := startProxy(t, up.URL, "--tenant-header", "X-Tenant-ID", "--tls-cert", ca.path("proxy.crt"), "--tls-key", ca.path("proxy.key"), "--tls-client-ca", ca.path("authority.crt"))
	if !strings.HasPrefix(s.url, "https://") || !strings.Contains(s.stdout, "--cert client.crt") {
		t.Errorf("%s", s.stdout)
	}
	resp, err := ca.client("alice").Get(s.url + "/a")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.TLS.Version != tls.VersionTLS13 || resp.StatusCode != 200 {
		t.Errorf("%s %s, TLS %x", resp.Proto, resp.Status, resp.TLS.Version)
	}
	r, err := http.NewRequest(http.MethodPost, s.url+"/things", strings.NewReader("a"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Tenant-ID", "alice")
	if resp, err = ca.client("alice").Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Errorf("a header of a client with a certificate: %s", resp.Status)
	}
	if resp, err := ca.client("").Get(s.url); err == nil {
		t.Errorf("without a certificate: %s", resp.Status)
	}
	mallory := others.client("mallory")
	mallory.Transport.(*http.Transport).TLSClientConfig.RootCAs = ca.pool()
	if resp, err := mallory.Get(s.url); err == nil {
		t.Errorf("with a certificate of others: %s", resp.Status)
	}
	old := ca.client("alice")
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	old.Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS10
	if resp, err := old.Get(s.url); err == nil {
		t.Errorf("with TLS 1.1: %s", resp.Status)
	}
	if resp, err := http.Get("http://" + strings.TrimPrefix(s.url, "https://")); err == nil {
		if resp.Body.Close(); resp.StatusCode != 400 {
			t.Errorf("in clear text: %s", resp.Status)
		}
	}
}

func TestSecurity23CertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	ca := newAuthority(t)
	for _, name := range []string{"one", "two", "three"} {
		ca.sign(name, false)
	}
	use := func(name, as string) {
		text, err := os.ReadFile(ca.path(name))
		if err != nil {
			t.Fatal(err)
		}
		cmdtest.WriteFile(t, ca.path(as), string(text))
	}
	use("one.crt", "proxy.crt")
	use("one.key", "proxy.key")
	s := startProxy(t, up.URL, "--single-tenant", "--tls-cert", ca.path("proxy.crt"), "--tls-key", ca.path("proxy.key"))
	client := ca.client("")
	if got := ca.shown(client, s.url); got != "one" {
		t.Fatal(got)
	}
	use("two.crt", "proxy.crt")
	s.signal(syscall.SIGHUP)
	s.logs(t, "the settings were not put in place: the old ones stay")
	if got := ca.shown(client, s.url); got != "one" {
		t.Errorf("with half a pair: %s", got)
	}
	use("two.key", "proxy.key")
	cmdtest.Until(t, "the change is seen without a signal", func() bool { return ca.shown(client, s.url) == "two" })
	use("three.crt", "proxy.crt")
	use("three.key", "proxy.key")
	s.signal(syscall.SIGHUP)
	cmdtest.Until(t, "SIGHUP is heeded", func() bool { return ca.shown(client, s.url) == "three" })
}

func TestSecurity23TheUpstreamIsVerifiedAndVerifiesTheProxy(t *testing.T) {
	t.Parallel()
	ca, others := newAuthority(t), newAuthority(t)
	ca.sign("proxy", false)
	others.sign("proxy", false)
	ca.sign("upstream.internal", false)
	cert, err := tls.LoadX509KeyPair(ca.path("upstream.internal.crt"), ca.path("upstream.internal.key"))
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: ca.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	up.StartTLS()
	defer up.Close()

	right := []string{"--single-tenant", "--upstream-ca", ca.path("authority.crt"), "--upstream-cert", ca.path("proxy.crt"), "--upstream-key", ca.path("proxy.key")}
	s := startProxy(t, up.URL, right...)
	if got := s.send("k", "a"); got.status != 200 || got.body != "proxy" {
		t.Errorf("with a key: %+v", got)
	}
	if got := s.get("/"); got.status != 200 || got.body != "proxy" {
		t.Errorf("without one: %+v", got)
	}
	file := strings.NewReplacer("CA", ca.path("authority.crt"), "CRT", ca.path("proxy.crt"), "KEY", ca.path("proxy.key")).Replace(`
tenant: {single: true}
upstreams: [{url: UP, tls: {ca: CA, cert: CRT, key: KEY, server_name: NAME}}]
`)
	s, _ = startProxyFile(t, up.URL, strings.Replace(file, "NAME", "upstream.internal", 1))
	if got := s.send("k", "a"); got.status != 200 {
		t.Errorf("with the name in its certificate: %+v", got)
	}
	before := runs
	wrong, _ := startProxyFile(t, up.URL, strings.Replace(file, "NAME", "other.internal", 1))
	for name, s := range map[string]*served{
		"another name":            wrong,
		"no authority":            startProxy(t, up.URL, "--single-tenant"),
		"no certificate":          startProxy(t, up.URL, "--single-tenant", "--upstream-ca", ca.path("authority.crt")),
		"a certificate of others": startProxy(t, up.URL, append(right, "--upstream-cert", others.path("proxy.crt"), "--upstream-key", others.path("proxy.key"))...),
	} {
		if got := s.send("k", "a"); got.status < 500 {
			t.Errorf("%s, with a key: %+v", name, got)
		}
		if got := s.get("/"); got.status < 500 {
			t.Errorf("%s, without a key: %+v", name, got)
		}
	}
	if runs != before {
		t.Errorf("%d requests came through", runs-before)
	}
}
