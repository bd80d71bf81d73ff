package proxy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// An Upstream is a server to which requests are sent. Routes that have the same
// one share its connections. A zero field means its documented default.
type Upstream struct {
	URL      *url.URL    // http or https, with a host; its path, if any, is put before the request's
	TLS      *tls.Config // for https: CAs, client certificates, name; default: the system's CAs, TLS 1.2 and later
	HTTP2    bool        // it speaks HTTP/2, in clear text if URL is http; default: HTTP/1.1, but HTTP/2 for gRPC
	KeepHost bool        // send the client's Host, which must then be the same in a repeat; default: the URL's

	DialTimeout   time.Duration // to connect; default 5s
	TLSTimeout    time.Duration // for the TLS handshake; default 5s
	HeaderTimeout time.Duration // from the end of the request to the answer's header; default 60s; negative: none
	StallTimeout  time.Duration // for sending a keyed request, and between bytes of its answer, by HTTP/2 as by HTTP/1.1; default 60s
	BodyTimeout   time.Duration // for all of the body of a keyed request's answer, unless it is a stream of events; default 10m; negative: none

	// MaxIdle is how many connections are kept for the next request, default
	// 256; KeepIdle is how long one is, default 1s, for a server that closes it
	// at the moment a request is sent leaves the outcome unknown, and common
	// servers close after 2s. Give less than the server's own.
	MaxIdle  int
	KeepIdle time.Duration

	// MaxConns is how many requests may be with the server at a time, default
	// 1024. Each has a connection of its own, unless they share one by HTTP/2;
	// WebSockets and streams count for as long as they last. A quarter is kept
	// for requests with a key. A request for which there is no room waits for
	// a second, and is then rejected with 503. A free place goes to the client
	// address (of IPv6, the /64) that has the fewest.
	//
	// While requests wait, those that are held up by their own clients are
	// ended, the longest-blocked first and no more than wait. A client has 10
	// seconds to read its answer, or to send a body without a key, and gains a
	// second for every 10 KiB that it reads or sends, up to 20. If its address
	// has more than half of the places and another address waits, it has one
	// second. See Server for HTTP/2.
	MaxConns int

	// OneRequestPerConn makes a new connection for every request, unless it is
	// sent by HTTP/2 only. By default a connection is used again: for keyed
	// requests of the same tenant only, so that whatever an upstream writes
	// behind an answer, no other tenant's keyed request can be given it; and for
	// requests without a key of anybody, who may be given it.
	OneRequestPerConn bool
}

const (
	defaultDial     = 5 * time.Second
	defaultTLS      = 5 * time.Second
	defaultHeader   = 60 * time.Second
	defaultStall    = 60 * time.Second
	defaultBody     = 10 * time.Minute
	defaultKeepIdle = time.Second
	defaultMaxIdle  = 256
	defaultMaxConns = 1024
)

func (u *Upstream) check() error {
	switch {
	case u == nil:
		return errors.New("the Upstream is nil: say where requests go")
	case u.URL == nil || u.URL.Host == "" || u.URL.Scheme != "http" && u.URL.Scheme != "https":
		return fmt.Errorf("the upstream %q: write a URL such as http://127.0.0.1:3000", u.URL)
	case u.URL.User != nil || u.URL.RawQuery != "" || u.URL.Fragment != "" || u.URL.Opaque != "":
		return fmt.Errorf("the upstream %q: write scheme, host and path only", u.URL.Redacted())
	case strings.HasPrefix(u.URL.Path, "//"):
		return fmt.Errorf("the upstream %q: its path begins with two slashes, which servers take for a host: write one", u.URL)
	case u.TLS != nil && u.URL.Scheme == "http":
		return fmt.Errorf("the upstream %q has a TLS setting: write https", u.URL)
	case u.DialTimeout < 0 || u.TLSTimeout < 0 || u.StallTimeout < 0 || u.KeepIdle < 0 || u.MaxIdle < 0 || u.MaxConns < 0:
		return fmt.Errorf("the upstream %q: a limit is negative: write a positive value, or leave it 0 for the default", u.URL)
	}
	return nil
}

func (u *Upstream) withDefaults() Upstream {
	d := *u
	d.DialTimeout = cmp.Or(d.DialTimeout, defaultDial)
	d.TLSTimeout = cmp.Or(d.TLSTimeout, defaultTLS)
	d.HeaderTimeout = max(cmp.Or(d.HeaderTimeout, defaultHeader), 0)
	d.StallTimeout = cmp.Or(d.StallTimeout, defaultStall)
	d.BodyTimeout = max(cmp.Or(d.BodyTimeout, defaultBody), 0)
	d.KeepIdle = cmp.Or(d.KeepIdle, defaultKeepIdle)
	d.MaxConns = cmp.Or(d.MaxConns, defaultMaxConns)
	d.MaxIdle = cmp.Or(d.MaxIdle, defaultMaxIdle)
	return d
}
