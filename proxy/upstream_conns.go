package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
)

// upstreamConns are an Upstream and the connections to it.
type upstreamConns struct {
	Upstream
	base      string       // the escaped path that precedes a request's
	client    *h1.Client   // for keyed requests over HTTP/1.1
	unkeyed   *h1.Client   // for short requests without a key; nil: the upstream may speak HTTP/2
	transport roundTripper // for all other requests without a key
	h2        roundTripper // for gRPC without a key, and all such requests to an upstream that speaks HTTP/2
	keyedH2   roundTripper // for keyed requests over HTTP/2, which bodies that any client sends must not block
	slots     *slots.Slots
}

type roundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

func newUpstreamConns(u *Upstream) *upstreamConns {
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
	l.h2, l.keyedH2 = l.newSharedHTTP2(), l.newSharedHTTP2()
	switch {
	case l.HTTP2:
		l.transport = l.h2
	case u.URL.Scheme == "https": // it may negotiate HTTP/2
		l.transport = newSharedTransport(l.newTransport(false), &l.Upstream)
	default:
		l.transport = l.newTransport(false)
		cfg.Watch, cfg.StallTimeout = true, 0
		l.unkeyed = h1.NewClient(cfg)
	}
	return l
}

var errNotHTTP2 = errors.New("the upstream does not speak HTTP/2, which gRPC and the setting for HTTP/2 require")

// onlyHTTP2 returns a VerifyConnection that rejects a connection without HTTP/2,
// over which net/http would continue with HTTP/1.1: keyed requests of all tenants would
// share it.
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

// newSharedHTTP2 returns a transport that speaks HTTP/2 only.
func (l *upstreamConns) newSharedHTTP2() *sharedTransport {
	t := l.newTransport(true)
	if l.URL.Scheme == "https" {
		t.Protocols.SetHTTP1(false)
		t.TLSClientConfig.VerifyConnection = l.onlyHTTP2(l.TLS.VerifyConnection)
	}
	return newSharedTransport(t, &l.Upstream)
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
		DialContext:            (&net.Dialer{Timeout: l.DialTimeout}).DialContext,
		TLSClientConfig:        l.TLS.Clone(),
		TLSHandshakeTimeout:    l.TLSTimeout,
		ResponseHeaderTimeout:  l.HeaderTimeout,
		IdleConnTimeout:        l.KeepIdle,
		MaxIdleConns:           l.MaxIdle,
		MaxIdleConnsPerHost:    l.MaxIdle,
		MaxResponseHeaderBytes: h1.MaxHead,
		Protocols:              protocols,
		DisableCompression:     true,
		DisableKeepAlives:      l.OneRequestPerConn && !h2,
		HTTP2:                  &http.HTTP2Config{WriteByteTimeout: l.StallTimeout}, // canceling a request writes, too
	}
}

// retire closes the idle connections, and the others once they become idle.
func (l *upstreamConns) retire() {
	l.transport.CloseIdleConnections()
	l.h2.CloseIdleConnections()
	l.keyedH2.CloseIdleConnections()
	l.client.Retire()
	if l.unkeyed != nil {
		l.unkeyed.Retire()
	}
}

// owner returns the owner of a connection of the h1 clients, or "" if no connection is reused.
func (l *upstreamConns) owner(name string) string {
	if l.OneRequestPerConn {
		return ""
	}
	return name
}

// RoundTrip sends a request without a key over the version of HTTP that it needs.
func (l *upstreamConns) RoundTrip(r *http.Request) (*http.Response, error) {
	if isGRPC(r) {
		return l.h2.RoundTrip(r)
	}
	res, err := l.transport.RoundTrip(r)
	for n := 1; n < maxGivenUp && givenUp(err) && r.Context().Err() == nil && isSafe(r); n++ {
		res, err = l.transport.RoundTrip(r)
	}
	return res, withoutQuote(err)
}

// withoutQuote returns an error whose text lacks the quotation by net/http of a malformed
// message, which may be secret: errors are logged. Errors of connecting quote only
// names.
func withoutQuote(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	text, _, quotes := strings.Cut(err.Error(), `"`)
	if !quotes || errors.As(err, &op) || errors.As(err, &certificate) {
		return err
	}
	return &unquoted{strings.TrimRight(text, "=: "), err}
}

type unquoted struct {
	text string
	err  error
}

func (e *unquoted) Error() string { return e.text }
func (e *unquoted) Unwrap() error { return e.err }

// maxGivenUp is how often a safe request is sent at most, if earlier requests on its
// connections are canceled.
const maxGivenUp = 30

// givenUp reports whether the error is that of a canceled request. If the client of
// an earlier request on the connection hangs up just as its response arrives,
// net/http ends the connection, with that client's error, for the request that uses
// it by then.
func givenUp(err error) bool {
	if unsent, ok := err.(*unsentError); ok {
		err = unsent.error
	}
	return err == context.Canceled || err == context.DeadlineExceeded || err == h1.ErrInterim // net/http's own time limits are DeadlineExceeded, too
}

// isSafe reports whether a request may be sent twice: its method is safe (RFC 9110,
// section 9.2.1), and it has no body.
func isSafe(r *http.Request) bool {
	return r.Body == nil && hasSafeMethod(r)
}

func hasSafeMethod(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// isGRPC reports whether a request is a gRPC call.
func isGRPC(r *http.Request) bool {
	ct := r.Header["Content-Type"]
	if r.ProtoMajor != 2 || r.Method != http.MethodPost || len(ct) != 1 {
		return false
	}
	return httpfield.IsGRPC(ct[0])
}
