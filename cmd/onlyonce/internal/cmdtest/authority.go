package cmdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates, which it writes to files in its folder.
type Authority struct {
	t    *testing.T
	dir  string
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a certificate and a folder of its own.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.Cert, a.key = a.Sign("authority", true)
	return a
}

// Path returns the path of a file in the folder.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name) }

// Sign writes NAME.crt and NAME.key.
func (a *Authority) Sign(name string, isAuthority bool) (*x509.Certificate, *ecdsa.PrivateKey) {
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
	parent, signer := a.Cert, a.key
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
	WriteFile(a.t, a.Path(name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	WriteFile(a.t, a.Path(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

// Pool returns the authority as the only one that is trusted.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}

// Client trusts the authority, and shows the certificate of a name if one is
// given. Every request is a connection of its own.
func (a *Authority) Client(name string) *http.Client {
	a.t.Helper()
	cfg := &tls.Config{RootCAs: a.Pool()}
	if name != "" {
		cert, err := tls.LoadX509KeyPair(a.Path(name+".crt"), a.Path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
}

// Shown returns the name in the certificate that a server shows.
func (a *Authority) Shown(client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	resp.Body.Close()
	return resp.TLS.PeerCertificates[0].Subject.CommonName
}
