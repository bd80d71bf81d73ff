package proxycmd

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/proxyfile"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A security is one generation of the TLS settings for clients. Each generation has its
// own session ticket keys, so that no client resumes a session that began under other
// settings.
type security struct {
	config      *tls.Config
	authorities map[[sha256.Size]byte]bool // of clients' certificates, by their digest; nil: clients need none

	settings proxyfile.ServerTLS // of which it was made
	files    [sha256.Size]byte
}

// newSecurity reads the TLS files of the public listener. It returns nil if the listener
// speaks plain HTTP. Otherwise, it has tried a handshake of each TLS version.
func newSecurity(t proxyfile.ServerTLS, acceptRisks []string) (*security, error) {
	if t.Cert == "" {
		return nil, nil
	}
	s := &security{settings: t, files: digest(t.Cert, t.Key, t.ClientCA)}
	cert, err := readKeyPair(t.Cert, t.Key, acceptRisks)
	if err != nil {
		return nil, err
	}
	tickets := new(tls.Config) // makes its keys by itself, and replaces them every day
	s.config = &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		WrapSession: tickets.EncryptTicket, UnwrapSession: tickets.DecryptTicket,
	}
	if t.MinVersion == proxyfile.TLS13 {
		s.config.MinVersion = tls.VersionTLS13
	}
	if t.ClientCA != "" {
		if err := s.requireCertificates(t.ClientCA); err != nil {
			return nil, err
		}
	}
	if err := s.try(); err != nil {
		return nil, fmt.Errorf("tls: a handshake with the certificate %s fails: %w", t.Cert, err)
	}
	return s, nil
}

// requireCertificates lets in only clients that show a certificate which one of
// the authorities in a file has signed.
func (s *security) requireCertificates(path string) error {
	certs, err := readCertificates(path)
	if err != nil {
		return fmt.Errorf("tls.client_ca: %w", err)
	}
	s.authorities = make(map[[sha256.Size]byte]bool)
	s.config.ClientCAs = x509.NewCertPool()
	for _, cert := range certs {
		s.config.ClientCAs.AddCert(cert)
		s.authorities[sha256.Sum256(cert.Raw)] = true
	}
	s.config.ClientAuth = tls.RequireAndVerifyClientCert
	s.config.SessionTicketsDisabled = true // every connection shows its certificate
	return nil
}

// isUnchanged reports whether the settings and the contents of their files are those of
// which s was made.
func (s *security) isUnchanged(t proxyfile.ServerTLS) bool {
	return s != nil && s.settings == t && s.files == digest(t.Cert, t.Key, t.ClientCA)
}

// admits reports whether the current settings would accept a request's connection. A
// connection outlives settings: its client may have presented no certificate, or one of
// an authority that is no longer trusted.
func (s *security) admits(r *http.Request) bool {
	if s == nil || s.authorities == nil {
		return true
	}
	if r.TLS == nil {
		return false
	}
	for _, chain := range r.TLS.VerifiedChains {
		if s.authorities[sha256.Sum256(chain[len(chain)-1].Raw)] {
			return true
		}
	}
	return false
}

// otherConnection is the problem of a request that admits rejects.
var otherConnection = httponce.Problem{
	Code: "client_certificate_required", Status: http.StatusMisdirectedRequest, Retryable: true,
	Title:  "The connection was made under old settings",
	Detail: "The certificates that clients must show have changed. Send the request again over a new connection.",
}

// listening returns the settings of a listener, which takes those of every
// connection from now. It has none of its own that could count instead.
func listening(now func() *security) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now().config, nil },
	}
}

// try does a handshake of each version of TLS with s as a listener does, but for
// the client's certificate. An error says that no client can connect.
func (s *security) try() error {
	own := *s
	own.config = s.config.Clone()
	own.config.ClientAuth = tls.NoClientCert
	server := listening(func() *security { return &own })
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if version < s.config.MinVersion {
			continue
		}
		if err := tryHandshake(server, version); err != nil {
			return fmt.Errorf("%s: %w", tls.VersionName(version), err)
		}
	}
	return nil
}

// tryWithin bounds a handshake in memory.
const tryWithin = 5 * time.Second

// tryHandshake returns the error with which the server's half of a handshake
// fails.
func tryHandshake(server *tls.Config, version uint16) error {
	ours, theirs := net.Pipe()
	defer ours.Close()
	_ = ours.SetDeadline(time.Now().Add(tryWithin)) // a pipe has deadlines
	client := make(chan error, 1)
	go func() {
		defer theirs.Close()
		eager := &eagerConn{theirs, make(chan []byte, 16)}
		var sent sync.WaitGroup
		sent.Go(eager.send)
		defer sent.Wait()
		defer close(eager.out)
		conn := tls.Client(eager, &tls.Config{
			InsecureSkipVerify: true, // it is our own certificate, and this asks only whether the server can use it
			MinVersion:         version, MaxVersion: version, ClientSessionCache: tls.NewLRUClientSessionCache(1), ServerName: "onlyonce.invalid",
		})
		_, err := conn.Read(make([]byte, 1)) // reads the bytes after the handshake, too
		client <- err
	}()
	err := tls.Server(ours, server).Handshake()
	ours.Close()
	if clientErr := <-client; err != nil && !errors.Is(clientErr, io.EOF) {
		return fmt.Errorf("%w (the client: %w)", err, clientErr)
	}
	return err
}

// An eagerConn writes without waiting for its reader, as a socket does. With a bare
// pipe both halves of a handshake may write and wait for each other forever: the
// server sends a session ticket at once, in which the client may not have got to.
type eagerConn struct {
	net.Conn
	out chan []byte
}

func (c *eagerConn) Write(p []byte) (int, error) {
	c.out <- bytes.Clone(p)
	return len(p), nil
}

// send writes the queued bytes until the queue is closed.
func (c *eagerConn) send() {
	for p := range c.out {
		_, _ = c.Conn.Write(p) // which fails if the reader is gone
	}
}
