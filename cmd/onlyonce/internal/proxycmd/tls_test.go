package proxycmd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// newTLSProxy returns a proxy with settings for TLS, whose settings apply changes.
func newTLSProxy(t *testing.T, secure proxyfile.ServerTLS) (*reloadableProxy, func(proxyfile.ServerTLS) error) {
	t.Helper()
	settings := func(secure proxyfile.ServerTLS) *proxyfile.File {
		f := proxyfile.New()
		f.TLS = secure
		f.Tenant.Single = true
		up := proxyfile.NewUpstream()
		up.URL = "http://127.0.0.1:1"
		f.Upstreams = []proxyfile.Upstream{up}
		return checked(t, f)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := newReloadableProxy(t.Context(), settings(secure), newRouteBuilder(memstore.New(memstore.Config{}), metrics.New(), log, nil), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	return p, func(secure proxyfile.ServerTLS) error {
		return p.apply(context.WithoutCancel(t.Context()), settings(secure))
	}
}

func TestTLS_AfterAFailedReloadTheFilesForTLSAreLookedAtAgain(t *testing.T) {
	ca := cmdtest.NewAuthority(t)
	ca.Sign("one", false)
	ca.Sign("two", false)
	use := func(name string) {
		for _, end := range []string{".crt", ".key"} {
			text, err := os.ReadFile(ca.Path(name + end))
			if err != nil {
				t.Fatal(err)
			}
			cmdtest.WriteFile(t, ca.Path("proxy"+end), string(text))
		}
	}
	use("one")
	p, _ := newTLSProxy(t, proxyfile.ServerTLS{Cert: ca.Path("proxy.crt"), Key: ca.Path("proxy.key"), MinVersion: "1.2"})
	inPlace := func() string {
		state, err := shake(t, p.tlsConfig(), &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].Subject.CommonName
	}
	p.read = func() (*proxyfile.File, error) {
		f := *p.file
		f.Upstreams = slices.Clone(f.Upstreams)
		f.Upstreams[0].TLS.CA = ca.Path("missing.crt")
		return &f, nil
	}
	use("two")
	p.reload(t.Context())
	if name := inPlace(); name != "one" {
		t.Errorf("after a reload that failed the certificate is %s", name)
	}
	p.look(t.Context())
	p.look(t.Context())
	if name := inPlace(); name != "two" {
		t.Errorf("after two looks the certificate is %s", name)
	}
	failed := func() float64 { return testutil.ToFloat64(p.routes.metrics.reloads.WithLabelValues("failed")) }
	cmdtest.WriteFile(t, ca.Path("proxy.key"), "no key")
	before := failed()
	for range 3 {
		p.look(t.Context())
	}
	if n := failed() - before; n != 1 {
		t.Errorf("a file that is not right was tried %v times", n)
	}
}

// shake connects a client to a server, and returns how the client sees the
// connection once a byte of the server has come through.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // a net.Pipe would lock up when both sides write
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	theirs, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer ours.Close()
		conn := tls.Server(ours, server)
		if conn.Handshake() == nil {
			_, _ = io.WriteString(conn, "a")
			_, _ = conn.Read(make([]byte, 1)) // until the client has gone
		}
	}()
	conn := tls.Client(theirs, client)
	_, err = io.ReadFull(conn, make([]byte, 1))
	state := conn.ConnectionState()
	theirs.Close()
	<-done
	return state, err
}

// Every change of the authorities and of the certificate, for clients of both
// versions that hold a session of before.
func TestTLS_AfterAReloadEveryHandshakeIsJudgedByTheNewSettings(t *testing.T) {
	server, one, two := cmdtest.NewAuthority(t), cmdtest.NewAuthority(t), cmdtest.NewAuthority(t)
	server.Sign("a", false)
	server.Sign("b", false)
	clients := map[string]*cmdtest.Authority{"one": one, "two": two}
	for _, ca := range clients {
		ca.Sign("client", false)
	}
	settings := func(clientCA, cert string) proxyfile.ServerTLS {
		s := proxyfile.ServerTLS{Cert: server.Path(cert + ".crt"), Key: server.Path(cert + ".key"), MinVersion: "1.2"}
		if ca := clients[clientCA]; ca != nil {
			s.ClientCA = ca.Path("authority.crt")
		}
		return s
	}
	for _, from := range []string{"none", "one", "two"} {
		for _, to := range []string{"none", "one", "two"} {
			for _, cert := range []string{"a", "b"} {
				for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
					t.Run(fmt.Sprintf("from %s to %s with certificate %s over TLS %s", from, to, cert, name), func(t *testing.T) {
						p, apply := newTLSProxy(t, settings(from, "a"))
						listening := p.tlsConfig()
						client := func(ca string) *tls.Config {
							cfg := &tls.Config{RootCAs: server.Pool(), ServerName: "127.0.0.1", MinVersion: version, MaxVersion: version}
							if ca != "none" {
								pair, err := tls.LoadX509KeyPair(clients[ca].Path("client.crt"), clients[ca].Path("client.key"))
								if err != nil {
									t.Fatal(err)
								}
								cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
							}
							return cfg
						}
						session := tls.NewLRUClientSessionCache(1)
						first := client(from)
						first.ClientSessionCache = session
						if _, err := shake(t, listening, first); err != nil {
							t.Fatalf("before the reload: %v", err)
						}
						if err := apply(settings(to, cert)); err != nil {
							t.Fatal(err)
						}
						unchanged := from == "none" && to == "none" && cert == "a"
						for _, with := range []string{"none", "one", "two"} {
							c := client(with)
							c.ClientSessionCache = session
							state, err := shake(t, listening, c)
							switch allowed := to == "none" || with == to; {
							case allowed && err != nil:
								t.Fatalf("a client with the certificate of %s is rejected: %v", with, err)
							case !allowed && err == nil:
								t.Fatalf("a client with the certificate of %s is let in", with)
							case allowed && with == from && state.DidResume != unchanged:
								t.Errorf("resumed: %t", state.DidResume)
							case allowed && state.PeerCertificates[0].Subject.CommonName != cert:
								t.Errorf("the certificate is %s", state.PeerCertificates[0].Subject)
							}
							session = tls.NewLRUClientSessionCache(1) // only the first asks to resume
						}
					})
				}
			}
		}
	}
}

func TestTLS_AConnectionOfASupersededAuthorityIsEndedByItsNextRequest(t *testing.T) {
	server, one, two := cmdtest.NewAuthority(t), cmdtest.NewAuthority(t), cmdtest.NewAuthority(t)
	server.Sign("a", false)
	settings := proxyfile.ServerTLS{Cert: server.Path("a.crt"), Key: server.Path("a.key"), MinVersion: "1.2"}
	p, apply := newTLSProxy(t, settings)
	status := func(state *tls.ConnectionState) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.TLS = state
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if closes := w.Header().Get("Connection") == "close"; closes != (w.Code == http.StatusMisdirectedRequest) {
			t.Errorf("status %d with %v", w.Code, w.Header())
		}
		return w.Code
	}
	const passed = http.StatusServiceUnavailable // to an upstream that is not there
	without := &tls.ConnectionState{}
	with := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{one.Cert}}}
	for _, step := range []struct {
		ca                string
		without, withOnes int
	}{
		{"", passed, passed},
		{one.Path("authority.crt"), http.StatusMisdirectedRequest, passed},
		{two.Path("authority.crt"), http.StatusMisdirectedRequest, http.StatusMisdirectedRequest},
		{"", passed, passed},
	} {
		settings.ClientCA = step.ca
		if err := apply(settings); err != nil {
			t.Fatal(err)
		}
		if got := status(without); got != step.without {
			t.Errorf("with %q, a connection without a certificate: %d", step.ca, got)
		}
		if got := status(with); got != step.withOnes {
			t.Errorf("with %q, a connection with one of the first authority: %d", step.ca, got)
		}
	}
}

func TestTLS_HandshakesThatFailByTheProxysFaultAreLoggedCountedAndNotReady(t *testing.T) {
	ca := cmdtest.NewAuthority(t)
	ca.Sign("a", false)
	s, err := newSecurity(proxyfile.ServerTLS{Cert: ca.Path("a.crt"), Key: ca.Path("a.key"), MinVersion: "1.2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	m := metrics.New()
	h := newHandshakes(m.Registry, func() *security { return s }, slog.New(slog.NewTextHandler(&log, nil)))
	metrics := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	client := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	h.report(client, errors.New("remote error: tls: bad certificate"))
	if err := h.check(t.Context()); err != nil || log.Len() > 0 {
		t.Fatalf("%v, log: %s", err, &log)
	}
	right := s.config.WrapSession
	s.config.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) {
		return nil, errors.New("session ticket keys unavailable")
	}
	h.tried = time.Time{}
	h.report(client, errors.New("session ticket keys unavailable"))
	if h.check(t.Context()) == nil || strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), "keys unavailable") {
		t.Errorf("it is ready, log: %s", &log)
	}
	if text := metrics(); !strings.Contains(text, `onlyonce_proxy_tls_handshake_errors_total{fault="client"} 1`) || !strings.Contains(text, `onlyonce_proxy_tls_handshake_errors_total{fault="server"} 1`) {
		t.Error(text)
	}
	s.config.WrapSession = right
	h.tried = time.Time{}
	if err := h.check(t.Context()); err != nil || strings.Count(log.String(), "level=INFO") != 1 {
		t.Errorf("%v, log: %s", err, &log)
	}
}

// What one side of a handshake writes at once, and the other reads at once, depends on
// the length of the certificate.
func TestTLS_AHandshakeIsTriedWithCertificatesOfAnyLength(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= 1500; n += 50 {
		cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
		cert.Subject.CommonName = strings.Repeat("n", n)
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		own := &security{config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
		if err := own.try(); err != nil {
			t.Fatalf("a certificate of %d bytes: %v", len(der), err)
		}
	}
}

func TestTLS_AFileThatEndsInTheMiddleOfACertificateIsNotHalfRead(t *testing.T) {
	t.Parallel()
	first, second := cmdtest.NewAuthority(t), cmdtest.NewAuthority(t)
	var both, last []byte
	for _, a := range []*cmdtest.Authority{first, second} {
		text, err := os.ReadFile(a.Path("authority.crt"))
		if err != nil {
			t.Fatal(err)
		}
		both, last = append(both, text...), text
	}
	path := first.Path("both.crt")
	cmdtest.WriteFile(t, path, "a comment\n"+string(both)+"another\n")
	if certs, err := readCertificates(path); err != nil || len(certs) != 2 {
		t.Errorf("%d certificates, %v", len(certs), err)
	}
	for lacks := 2; lacks < len(last); lacks++ { // without its last line break, it is whole
		cmdtest.WriteFile(t, path, string(both[:len(both)-lacks]))
		if certs, err := readCertificates(path); err == nil || !strings.Contains(err.Error(), "in the middle") {
			t.Errorf("without the last %d bytes: %d certificates, %v", lacks, len(certs), err)
		}
		if _, err := readKeyPair(path, path, nil); err == nil || !strings.Contains(err.Error(), "in the middle") {
			t.Errorf("a chain without the last %d bytes: %v", lacks, err)
		}
	}
}

// TestTLS_AFileThatIsStillBeingWrittenIsNotUsed: a file that ends between two
// certificates looks as if it were whole.
func TestTLS_AFileThatIsStillBeingWrittenIsNotUsed(t *testing.T) {
	t.Parallel()
	ca, other := cmdtest.NewAuthority(t), cmdtest.NewAuthority(t)
	first, err := os.ReadFile(ca.Path("authority.crt"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(other.Path("authority.crt"))
	if err != nil {
		t.Fatal(err)
	}
	ca.Sign("server", false)
	path := ca.Path("clients.crt")
	cmdtest.WriteFile(t, path, string(first)+string(second))
	p, _ := newTLSProxy(t, proxyfile.ServerTLS{Cert: ca.Path("server.crt"), Key: ca.Path("server.key"), ClientCA: path, MinVersion: "1.2"})
	inPlace := func() int { return len(p.secure.Load().authorities) }
	cmdtest.WriteFile(t, path, string(first))
	if p.look(t.Context()); inPlace() != 2 {
		t.Errorf("%d authorities are in place while the file is being written", inPlace())
	}
	cmdtest.WriteFile(t, path, string(first)+string(second))
	p.look(t.Context())
	p.look(t.Context())
	if n := testutil.ToFloat64(p.routes.metrics.reloads.WithLabelValues("ok")); n != 0 || inPlace() != 2 {
		t.Errorf("the file is as it was: %d authorities are in place after %v reloads", inPlace(), n)
	}
	cmdtest.WriteFile(t, path, string(first))
	p.look(t.Context())
	if p.look(t.Context()); inPlace() != 1 {
		t.Errorf("%d authorities are in place after the file has changed", inPlace())
	}
}
