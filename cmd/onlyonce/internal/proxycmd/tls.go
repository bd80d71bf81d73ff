package proxycmd

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/regular"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
)

// upstreamTLS reads the files of an upstream; nil: the defaults.
func upstreamTLS(t proxyfile.ClientTLS, acceptRisks []string) (*tls.Config, error) {
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
		cert, err := readKeyPair(t.Cert, t.Key, acceptRisks)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// readKeyPair reads a certificate and its private key, which only its owner, and
// a group that can't change it, may use.
func readKeyPair(certFile, keyFile string, acceptRisks []string) (pair tls.Certificate, err error) {
	cert, err := readPEM(certFile)
	if err == nil {
		err = regular.Check(keyFile)
	}
	if err == nil {
		var key []byte
		if key, err = private.Read(keyFile, acceptRisks); err == nil {
			pair, err = tls.X509KeyPair(cert, key)
		}
	}
	if err != nil {
		return pair, fmt.Errorf("read the certificate %s and its key %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}

func readRoots(path string) (*x509.CertPool, error) {
	certs, err := readCertificates(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool, nil
}

// readCertificates reads all certificates of a PEM file, of which there must be
// one at least. A block that can't be read is left out, as x509.CertPool does.
func readCertificates(path string) (certs []*x509.Certificate, err error) {
	text, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			certs = append(certs, cert)
		}
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s contains no certificate: write PEM, beginning with -----BEGIN CERTIFICATE-----", path)
	}
	return certs, nil
}

// readPEM reads a file of certificates. It rejects a file that is still being written
// and ends in the middle of one.
func readPEM(path string) ([]byte, error) {
	text, err := regular.Read(path)
	if err != nil {
		return nil, err
	}
	rest := text
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		rest = after
	}
	if bytes.Contains(rest, []byte(beginCertificate)) || endsInBeginning(rest) {
		return nil, fmt.Errorf("%s ends in the middle of a certificate: write the complete certificate", path)
	}
	return text, nil
}

// beginCertificate begins a certificate in PEM.
const beginCertificate = "-----BEGIN CERTIFICATE"

// endsInBeginning reports whether the last line of text may be the beginning of a
// certificate's first line.
func endsInBeginning(text []byte) bool {
	last := string(text[bytes.LastIndexByte(text, '\n')+1:])
	return last != "" && strings.HasPrefix(beginCertificate, last)
}

// tlsFiles returns the TLS files that f names.
func tlsFiles(f *proxyfile.File) []string {
	files := []string{f.TLS.Cert, f.TLS.Key, f.TLS.ClientCA, f.Tenant.JWT.CA}
	for _, u := range f.Upstreams {
		files = append(files, u.TLS.CA, u.TLS.Cert, u.TLS.Key)
	}
	return files
}

// digest returns a hash over the contents of files, used to detect changes. A file that
// can't be read is hashed as empty; the error surfaces when the file is loaded.
func digest(files ...string) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, path := range files {
		one := sha256.New()
		if file, err := regular.Open(path); path != "" && err == nil {
			_, _ = io.Copy(one, io.LimitReader(file, 1<<20)) // an unreadable file is reported when it is used
			file.Close()
		}
		all.Write(one.Sum(nil))
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// hasCertificate reports whether the client has presented a certificate that was
// verified.
func hasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }
