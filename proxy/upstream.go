package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// An Upstream is a server to which requests are sent. Routes that have the same
// one share its connections. A zero field means its documented default.
type Upstream struct {
	URL      *url.URL    // http or https, with a host; its path, if any, is put before the request's
	TLS      *tls.Config // for https: CAs, client certificates, name; default: the system's CAs, TLS 1.2 and later
	HTTP2    bool        // it speaks HTTP/2, in clear text if URL is http; default: HTTP/1.1, but HTTP/2 for gRPC
	KeepHost bool        // send the client's Host; default: the URL's

	DialTimeout   time.Duration // to connect; default 5s
	TLSTimeout    time.Duration // for the TLS handshake; default 5s
	HeaderTimeout time.Duration // from the end of the request to the answer's header; default 60s; negative: none
	StallTimeout  time.Duration // for sending a keyed request, and between bytes of its answer; default 60s

	// MaxIdle is how many connections are kept for the next request, default
	// 256; KeepIdle is how long one is, default 1s, for a server that closes it
	// at the moment a request is sent leaves the outcome unknown, and common
	// servers close after 2s. Give less than the server's own.
	MaxIdle  int
	KeepIdle time.Duration
}

const (
	defaultDial     = 5 * time.Second
	defaultTLS      = 5 * time.Second
	defaultHeader   = 60 * time.Second
	defaultStall    = 60 * time.Second
	defaultKeepIdle = time.Second
	defaultMaxIdle  = 256
)

func (u *Upstream) check() error {
	switch {
	case u == nil:
		return errors.New("the Upstream is nil: say where requests go")
	case u.URL == nil || u.URL.Host == "" || u.URL.Scheme != "http" && u.URL.Scheme != "https":
		return fmt.Errorf("the upstream %q: write a URL such as http://127.0.0.1:3000", u.URL)
	case u.URL.User != nil || u.URL.RawQuery != "" || u.URL.Fragment != "" || u.URL.Opaque != "":
		return fmt.Errorf("the upstream %q: write scheme, host and path only", u.URL.Redacted())
	case u.TLS != nil && u.URL.Scheme == "http":
		return fmt.Errorf("the upstream %q has a TLS setting: write https", u.URL)
	case u.DialTimeout < 0 || u.TLSTimeout < 0 || u.StallTimeout < 0 || u.KeepIdle < 0 || u.MaxIdle < 0:
		return fmt.Errorf("the upstream %q: a limit is negative: write a positive value, or leave it 0 for the default", u.URL)
	}
	return nil
}

func (u *Upstream) withDefaults() Upstream {
	d := *u
	d.DialTimeout = orDefault(d.DialTimeout, defaultDial)
	d.TLSTimeout = orDefault(d.TLSTimeout, defaultTLS)
	d.HeaderTimeout = max(orDefault(d.HeaderTimeout, defaultHeader), 0)
	d.StallTimeout = orDefault(d.StallTimeout, defaultStall)
	d.KeepIdle = orDefault(d.KeepIdle, defaultKeepIdle)
	d.MaxIdle = orDefault(d.MaxIdle, defaultMaxIdle)
	return d
}

func orDefault[T comparable](given, otherwise T) T {
	var zero T
	if given == zero {
		return otherwise
	}
	return given
}
