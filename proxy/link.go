package proxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
)

// A link is an Upstream with its connections.
type link struct {
	Upstream
	address   string // to dial
	base      string // the escaped path put before a request's
	secure    *tls.Config
	pool      pool            // for what is keyed, and not HTTP/2
	transport *http.Transport // for what passes
	h2        *http.Transport // for gRPC, if that is not the same
}

func newLink(u *Upstream) *link {
	l := &link{Upstream: u.withDefaults(), address: u.URL.Host, base: strings.TrimSuffix(u.URL.EscapedPath(), "/")}
	l.pool.max, l.pool.keep = l.MaxIdle, l.KeepIdle
	if u.URL.Port() == "" {
		l.address = net.JoinHostPort(u.URL.Hostname(), map[string]string{"http": "80", "https": "443"}[u.URL.Scheme])
	}
	if u.URL.Scheme == "https" {
		if l.TLS == nil {
			l.TLS = &tls.Config{}
		}
		l.secure = l.TLS.Clone()
		l.secure.NextProtos = []string{"http/1.1"}
		l.secure.ServerName = orDefault(l.secure.ServerName, u.URL.Hostname())
	}
	l.transport = l.newTransport(u.HTTP2)
	if l.h2 = l.transport; !u.HTTP2 && u.URL.Scheme == "http" {
		l.h2 = l.newTransport(true)
	}
	return l
}

func (l *link) newTransport(h2 bool) *http.Transport {
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
	}
}

// retire closes what is idle, and what is in use once it becomes idle.
func (l *link) retire() {
	l.transport.CloseIdleConnections()
	l.h2.CloseIdleConnections()
	l.pool.retire()
}
