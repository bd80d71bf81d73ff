package proxy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// An authority signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, pool: x509.NewCertPool()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}
	a.cert, a.key = a.sign(template, nil)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) issue(name string) tls.Certificate {
	cert, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// serveTLS is serve with TLS.
func serveTLS(t *testing.T, h http.Handler, config *tls.Config) string {
	t.Helper()
	l := listen(t)
	s := proxy.Server(h)
	s.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() { s.Close() })
	go s.Serve(proxy.Listen(l, config))
	return l.Addr().String()
}

// who is a handler that responds with headers that the proxy has set.
func who(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %s", r.Header.Get("X-Forwarded-Proto"), r.Header.Get("Idempotency-Attempt"))
}

func TestSecurity_ClientsComeByTLSAndByHTTP2(t *testing.T) {
	ca := newAuthority(t)
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, who), Guard: newGuard(onlyonce.Config{}), Idempotency: single}}, proxy.Config{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Client", fmt.Sprint(r.Proto, " ", r.TLS.PeerCertificates[0].Subject.CommonName))
		p.ServeHTTP(w, r)
	})
	addr := serveTLS(t, handler, &tls.Config{Certificates: []tls.Certificate{ca.issue("proxy")}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert})
	for _, h2 := range []bool{false, true} {
		c := &http.Transport{ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue("client")}}}
		for i := range 3 {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", "https://"+addr+"/v1/orders", strings.NewReader("x"))
			r.Header.Set("Idempotency-Key", fmt.Sprint("k", h2))
			res, err := c.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			want := map[bool]string{false: "HTTP/1.1 client", true: "HTTP/2.0 client"}[h2]
			if string(body) != "https 1" || res.Header.Get("X-Client") != want || (res.Header.Get("Idempotency-Replayed") != "") != (i > 0) {
				t.Errorf("%q %v", body, res.Header)
			}
		}
		c.CloseIdleConnections()
	}
}

func TestSecurity_WhatIsNotTLSOrNotTrustedIsRejected(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })}}, proxy.Config{})
	addr := serveTLS(t, p, &tls.Config{Certificates: []tls.Certificate{ca.issue("proxy")}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert})
	if response := exchange(t, addr, get11+"\r\n", 1000); !strings.HasPrefix(response, "HTTP/1.0 400 ") {
		t.Errorf("without TLS: %q", response)
	}
	for name, config := range map[string]*tls.Config{
		"no certificate":        {},
		"another's certificate": {Certificates: []tls.Certificate{other.issue("client")}},
		"TLS 1.1":               {Certificates: []tls.Certificate{ca.issue("client")}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
	} {
		config.RootCAs = ca.pool
		if c, err := tls.Dial("tcp", addr, config); err == nil {
			io.WriteString(c, get11+"\r\n")
			if response, err := io.ReadAll(c); err == nil {
				t.Errorf("%s: %q", name, response)
			}
			c.Close()
		}
	}
}

func TestSecurity_AmbiguousRequestsAreRejectedInsideTLS(t *testing.T) {
	ca := newAuthority(t)
	p := proxy.New([]proxy.Route{{Pattern: "/", Upstream: upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") })}}, proxy.Config{})
	addr := serveTLS(t, p, &tls.Config{Certificates: []tls.Certificate{ca.issue("proxy")}})
	for _, raw := range []string{
		ambiguous["01 length and coding"], ambiguous["21 a folded line"], ambiguous["25 a head that ends with LF"], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.pool, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, raw)
		if response, _ := io.ReadAll(c); !strings.HasPrefix(string(response), "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", raw, response)
		}
		c.Close()
	}
}

func TestSecurity_TheUpstreamIsVerifiedAndKnowsTheProxy(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	for _, h2 := range []bool{false, true} {
		var handshakes atomic.Int32
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s %s", r.Proto, r.TLS.PeerCertificates[0].Subject.CommonName)
		}))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.EnableHTTP2 = true // keyed requests to an upstream without an HTTP/2 setting use HTTP/1.1
		s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue("upstream")}, ClientCAs: ca.pool, ClientAuth: tls.RequireAndVerifyClientCert, VerifyConnection: func(tls.ConnectionState) error {
			handshakes.Add(1)
			return nil
		}}
		s.StartTLS()
		defer s.Close()
		to := func(c *tls.Config) string {
			return orders(t, &proxy.Upstream{URL: parse(t, s.URL), TLS: c, HTTP2: h2, KeepIdle: time.Minute}, onlyonce.Config{HoldUnknown: true}, nil)
		}
		addr := to(&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue("proxy")}})
		for i := range 3 {
			res, body := post(t, addr, fmt.Sprint("k", i), "x")
			wantResponse(t, res, body, 200, map[bool]string{false: "HTTP/1.1 proxy", true: "HTTP/2.0 proxy"}[h2])
		}
		if n := handshakes.Load(); n != 1 {
			t.Errorf("HTTP/2 %v: %d connections for three requests", h2, n)
		}
		also := to(&tls.Config{RootCAs: ca.pool, Certificates: []tls.Certificate{ca.issue("proxy")}, NextProtos: []string{"h2", "http/1.1"}})
		if res, body := post(t, also, "k", "x"); !strings.HasSuffix(body, " proxy") {
			t.Errorf("with ALPN: %d %q", res.StatusCode, body)
		}
		if res, body := post(t, addr, "", "x"); !strings.HasSuffix(body, " proxy") {
			t.Errorf("without a key: %d %q", res.StatusCode, body)
		}
		for name, c := range map[string]*tls.Config{
			"an unknown authority": {RootCAs: other.pool, Certificates: []tls.Certificate{ca.issue("proxy")}},
			"the system's":         nil,
		} {
			addr := to(c)
			for range 2 { // nothing was sent: the key is free
				res, body := post(t, addr, "k", "x")
				if res.StatusCode != 503 {
					t.Errorf("%s, HTTP/2 %v: %d %q", name, h2, res.StatusCode, body)
				}
			}
		}
	}
}
