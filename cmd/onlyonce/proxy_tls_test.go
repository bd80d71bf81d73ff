package main

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

func TestSecurity_ClientsSpeakTLSAndShowTheirCertificate(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	ca, others := cmdtest.NewAuthority(t), cmdtest.NewAuthority(t)
	ca.Sign("proxy", false)
	ca.Sign("alice", false)
	others.Sign("mallory", false)
	s := startProxy(t, up.URL, "--tenant-header", "X-Tenant-ID", "--tls-cert", ca.Path("proxy.crt"), "--tls-key", ca.Path("proxy.key"), "--tls-client-ca", ca.Path("authority.crt"))
	if !strings.HasPrefix(s.url, "https://") || !strings.Contains(s.stdout, "--cert client.crt") {
		t.Errorf("%s", s.stdout)
	}
	resp, err := ca.Client("alice").Get(s.url + "/a")
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
	if resp, err = ca.Client("alice").Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Errorf("a header of a client with a certificate: %s", resp.Status)
	}
	if resp, err := ca.Client("").Get(s.url); err == nil {
		t.Errorf("without a certificate: %s", resp.Status)
	}
	mallory := others.Client("mallory")
	mallory.Transport.(*http.Transport).TLSClientConfig.RootCAs = ca.Pool()
	if resp, err := mallory.Get(s.url); err == nil {
		t.Errorf("with a certificate of others: %s", resp.Status)
	}
	old := ca.Client("alice")
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

func TestSecurity_CertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	ca := cmdtest.NewAuthority(t)
	for _, name := range []string{"one", "two", "three"} {
		ca.Sign(name, false)
	}
	use := func(name, as string) {
		text, err := os.ReadFile(ca.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		cmdtest.WriteFile(t, ca.Path(as), string(text))
	}
	use("one.crt", "proxy.crt")
	use("one.key", "proxy.key")
	s := startProxy(t, up.URL, "--single-tenant", "--tls-cert", ca.Path("proxy.crt"), "--tls-key", ca.Path("proxy.key"))
	client := ca.Client("")
	if got := ca.Shown(client, s.url); got != "one" {
		t.Fatal(got)
	}
	use("two.crt", "proxy.crt")
	s.signal(syscall.SIGHUP)
	s.logs(t, "the new settings were rejected: the old ones stay in effect")
	if got := ca.Shown(client, s.url); got != "one" {
		t.Errorf("with half a pair: %s", got)
	}
	use("two.key", "proxy.key")
	cmdtest.Until(t, "the change is seen without a signal", func() bool { return ca.Shown(client, s.url) == "two" })
	use("three.crt", "proxy.crt")
	use("three.key", "proxy.key")
	s.signal(syscall.SIGHUP)
	cmdtest.Until(t, "SIGHUP is heeded", func() bool { return ca.Shown(client, s.url) == "three" })
}

func TestSecurity_TheUpstreamIsVerifiedAndVerifiesTheProxy(t *testing.T) {
	t.Parallel()
	ca, others := cmdtest.NewAuthority(t), cmdtest.NewAuthority(t)
	ca.Sign("proxy", false)
	others.Sign("proxy", false)
	ca.Sign("upstream.internal", false)
	cert, err := tls.LoadX509KeyPair(ca.Path("upstream.internal.crt"), ca.Path("upstream.internal.key"))
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	up.StartTLS()
	defer up.Close()

	right := []string{"--single-tenant", "--upstream-ca", ca.Path("authority.crt"), "--upstream-cert", ca.Path("proxy.crt"), "--upstream-key", ca.Path("proxy.key")}
	s := startProxy(t, up.URL, right...)
	if got := s.send("k", "a"); got.status != 200 || got.body != "proxy" {
		t.Errorf("with a key: %+v", got)
	}
	if got := s.get("/"); got.status != 200 || got.body != "proxy" {
		t.Errorf("without one: %+v", got)
	}
	file := strings.NewReplacer("CA", ca.Path("authority.crt"), "CRT", ca.Path("proxy.crt"), "KEY", ca.Path("proxy.key")).Replace(`
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
		"no certificate":          startProxy(t, up.URL, "--single-tenant", "--upstream-ca", ca.Path("authority.crt")),
		"a certificate of others": startProxy(t, up.URL, append(right, "--upstream-cert", others.Path("proxy.crt"), "--upstream-key", others.Path("proxy.key"))...),
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

func TestProxy_ClientsStillConnectAfterAReloadThatTakesTheirAuthorityAway(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	ca := cmdtest.NewAuthority(t)
	ca.Sign("proxy", false)
	ca.Sign("alice", false)
	text := strings.NewReplacer("UP", up.URL, "CRT", ca.Path("proxy.crt"), "KEY", ca.Path("proxy.key")).Replace(plainFile + "tls: {cert: CRT, key: KEY}\n")
	s, path := startProxyFile(t, up.URL, strings.Replace(text, "tls: {", "tls: {client_ca: "+ca.Path("authority.crt")+", ", 1), "--admin", "127.0.0.1:0")
	admin := s.at(s.adminURL(t))
	if got := ca.Shown(ca.Client("alice"), s.url); got != "proxy" {
		t.Fatal(got)
	}
	cmdtest.WriteFile(t, path, text)
	s.signal(syscall.SIGHUP)
	s.logs(t, "the settings were read again and are in place")
	if got := ca.Shown(ca.Client(""), s.url); got != "proxy" {
		t.Errorf("after client_ca was taken away: %s", got)
	}
	admin.ready()
	old := ca.Client("")
	old.Transport.(*http.Transport).TLSClientConfig.RootCAs = nil
	if resp, err := old.Get(s.url); err == nil {
		t.Errorf("a client that does not know the authority: %s", resp.Status)
	}
	admin.counts(`onlyonce_proxy_tls_handshake_errors_total{fault="client"} 1`, `onlyonce_proxy_tls_handshake_errors_total{fault="server"} 0`)
}
