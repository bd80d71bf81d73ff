package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
)

// serverTLS reads the files of the public listener; nil: it speaks plain HTTP.
func serverTLS(t proxyfile.ServerTLS) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: read the certificate %s and its key %s: %w", t.Cert, t.Key, err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if t.MinVersion == "1.3" {
		cfg.MinVersion = tls.VersionTLS13
	}
	if t.ClientCA != "" {
		if cfg.ClientCAs, err = readRoots(t.ClientCA); err != nil {
			return nil, fmt.Errorf("tls.client_ca: %w", err)
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		cfg.SessionTicketsDisabled = true // so that every connection is judged by the authorities of now
	}
	return cfg, nil
}

// upstreamTLS reads the files of an upstream; nil: the defaults.
func upstreamTLS(t proxyfile.ClientTLS) (*tls.Config, error) {
	if (t == proxyfile.ClientTLS{}) {
		return nil, nil
	}
	cfg := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	var err error
	if t.CA != "" {
		if cfg.RootCAs, err = readRoots(t.CA); err != nil {
			return nil, err
		}
	}
	if t.Cert != "" {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate %s and its key %s: %w", t.Cert, t.Key, err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no certificate: write PEM, beginning with -----BEGIN CERTIFICATE-----", path)
	}
	return pool, nil
}

// tlsFiles are those that f names.
func tlsFiles(f *proxyfile.File) []string {
	files := []string{f.TLS.Cert, f.TLS.Key, f.TLS.ClientCA, f.Tenant.JWT.CA}
	for _, u := range f.Upstreams {
		files = append(files, u.TLS.CA, u.TLS.Cert, u.TLS.Key)
	}
	return files
}

// digest tells whether one of files is another than before. One that can't be
// read counts as empty.
func digest(files ...string) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, path := range files {
		one := sha256.New()
		if file, err := os.Open(path); path != "" && err == nil {
			_, _ = io.Copy(one, io.LimitReader(file, 1<<20)) // what can't be read is told when it is used
			file.Close()
		}
		all.Write(one.Sum(nil))
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// hasCertificate reports whether a client has shown a certificate that was
// verified.
func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }
