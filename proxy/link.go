package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// upstreamConns are an Upstream and its connections.
type upstreamConns struct {
	Upstream
	base      string          // the escaped path put before a request's
	client    *h1.Client      // for what is keyed, and not HTTP/2
	transport *http.Transport // for what passes
	h2        *http.Transport // for gRPC, which nothing else can carry
	slots     *slots.Slots
}

func newLink(u *Upstream) *upstreamConns {
	l := &upstreamConns{Upstream: u.withDefaults(), base: strings.TrimSuffix(u.URL.EscapedPath(), "/")}
	l.slots = slots.New(l.MaxConns)
	cfg := h1.Config{
		Address: u.URL.Host, DialTimeout: l.DialTimeout, TLSTimeout: l.TLSTimeout,
		HeaderTimeout: l.HeaderTimeout, StallTimeout: l.StallTimeout, MaxIdle: l.MaxIdle, KeepIdle: l.KeepIdle,
	}
	if u.URL.Port() == "" {
		cfg.Address = net.JoinHostPort(u.URL.Hostname(), map[string]string{"http": "80", "https": "443"}[u.URL.Scheme])
	}
	if u.URL.Scheme == "https" {
		if l.TLS == nil {
			l.TLS = &tls.Config{}
		}
		cfg.TLS = l.TLS.Clone()
		cfg.TLS.NextProtos = []string{"http/1.1"}
		cfg.TLS.ServerName = cmp.Or(cfg.TLS.ServerName, u.URL.Hostname())
	}
	l.client = h1.NewClient(cfg)
	l.transport = l.newTransport(u.HTTP2)
	l.h2 = l.newTransport(true)
	if u.URL.Scheme == "https" {
		l.h2.Protocols.SetHTTP1(false)
		l.h2.TLSClientConfig.VerifyConnection = l.onlyHTTP2(l.TLS.VerifyConnection)
	}
	return l
}

var errNotHTTP2 = errors.New("the upstream does not speak HTTP/2, by which gRPC is sent")

// onlyHTTP2 returns what ends a connection that is not HTTP/2; net/http would go on
// by HTTP/1.1.
func (l *upstreamConns) onlyHTTP2(verify func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if s.NegotiatedProtocol != "h2" {
			return errNotHTTP2
		}
		if verify != nil {
			return verify(s)
		}
		return nil
	}
}

func (l *upstreamConns) newTransport(h2 bool) *http.Transport {
	protocols := new(http.Protocols)
	switch {
	case l.URL.Scheme == "https":
		protocols.SetHTTP2(true)
		protocols.SetHTTP1(true)
	case h2:
		protocols.SetUnencryptedHTTP2(true)
	default:
		protocols.SetHTTP1(true)
	}
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: l.DialTimeout}).DialContext,
		TLSClientConfig:       l.TLS.Clone(),
		TLSHandshakeTimeout:   l.TLSTimeout,
		ResponseHeaderTimeout: l.HeaderTimeout,
		IdleConnTimeout:       l.KeepIdle,
		MaxIdleConns:          l.MaxIdle,
		MaxIdleConnsPerHost:   l.MaxIdle,
		Protocols:             protocols,
		DisableCompression:    true,
		DisableKeepAlives:     l.OneRequestPerConn && !h2,
	}
}

// retire closes what is idle, and what is in use once it becomes idle.
func (l *upstreamConns) retire() {
	l.transport.CloseIdleConnections()
	l.h2.CloseIdleConnections()
	l.client.Retire()
}

// RoundTrip sends a request by the version of HTTP that it needs.
func (l *upstreamConns) RoundTrip(r *http.Request) (*http.Response, error) {
	if isGRPC(r) {
		return l.h2.RoundTrip(r)
	}
	res, err := l.transport.RoundTrip(r)
	for n := 1; n < maxGivenUp && givenUp(err) && r.Context().Err() == nil && isSafe(r); n++ {
		res, err = l.transport.RoundTrip(r)
	}
	return res, err
}

// maxGivenUp is how often a request is sent while others are given up beside it.
const maxGivenUp = 30

// givenUp reports that a request was given up. If the client of an earlier request
// on the same connection hangs up just when its answer is there, net/http ends the
// connection with that error for the request that has it by then.
func givenUp(err error) bool {
	return err == context.Canceled || err == context.DeadlineExceeded || err == h1.ErrInterim // a time limit of net/http's own is DeadlineExceeded, too
}

// isSafe reports whether a request may be sent twice: it only reads (RFC 9110,
// section 9.2.1), and has no body.
func isSafe(r *http.Request) bool {
	return r.Body == nil && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions)
}

// isGRPC reports whether a request is a gRPC call, and not of another type whose
// name begins so.
func isGRPC(r *http.Request) bool {
	ct := r.Header["Content-Type"]
	if r.ProtoMajor != 2 || r.Method != http.MethodPost || len(ct) != 1 {
		return false
	}
	rest, ok := strings.CutPrefix(ct[0], "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
