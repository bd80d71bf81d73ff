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

// An Upstream is a server to which requests are sent. Routes with the same Upstream
// share its connections. A zero field means its documented default.
type Upstream struct {
	URL      *url.URL    // http or https, with a host; its path, if any, precedes the request's
	TLS      *tls.Config // for https: CAs, client certificates, name; default: the system's CAs, TLS 1.2 and later
	HTTP2    bool        // the server speaks HTTP/2, in clear text if URL is http, and gets nothing otherwise; default: HTTP/1.1, but HTTP/2 for gRPC
	KeepHost bool        // send the client's Host, which must then be the same in a repeat; default: the URL's

	DialTimeout   time.Duration // to connect; default 5s
	TLSTimeout    time.Duration // for the TLS handshake; default 5s
	HeaderTimeout time.Duration // from the end of the request to the header of its response; default 60s; negative: none
	StallTimeout  time.Duration // for sending each piece of a keyed request, and between bytes of its response; over HTTP/2 also for sending each piece of any other request until its response begins, and for writing to the connection; default 60s
	BodyTimeout   time.Duration // for the whole body of the response to a keyed request, without the time that its client needs to read it, unless it is an event stream; default 10m; negative: none

	// MaxIdle is the largest number of idle connections for keyed requests, for short
	// requests without a key, and for all others, each; default 256.
	MaxIdle int

	// KeepIdle is how long an idle connection is kept; default 1s. Set less than
	// the server's own limit: if the server closes the connection just as a
	// request is sent, the outcome is unknown. Common servers close after 2s.
	KeepIdle time.Duration

	// MaxConns is the largest number of requests that are with the server at a
	// time; default 1024. Each has its own connection unless they share one over
	// HTTP/2. WebSockets and streams count for as long as they last. A quarter is
	// reserved for requests with a key. A request that finds no free slot waits for
	// a second and is then rejected with 503. A free slot goes to the client address
	// (for IPv6, the /64 network) that holds the fewest. A tenant's requests with a
	// key hold at most three times as many slots as are free, until a minute has
	// passed without a request of another tenant.
	//
	// While requests wait, requests that are held up by their own clients are ended,
	// the longest-blocked first, and no more of them than requests wait. A client
	// has 10 seconds to read its response, or to send a body without a key, and
	// gains a second for every 10 KiB that it reads or sends, up to 20 seconds. If
	// its address holds more than half of the slots and another address waits, it
	// has one second. See Server for HTTP/2.
	MaxConns int

	// OneRequestPerConn uses a new connection for every request, except over
	// HTTP/2. By default, connections are reused. A connection for keyed requests
	// serves one tenant, so that stray bytes which an upstream writes after a
	// response never reach the keyed request of another tenant. Requests without a
	// key share connections, regardless of the client.
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
		return errors.New("the Upstream is nil: set one")
	case u.URL == nil || u.URL.Host == "" || u.URL.Scheme != "http" && u.URL.Scheme != "https":
		return fmt.Errorf("the upstream %q: write a URL such as http://127.0.0.1:3000", u.URL)
	case u.URL.User != nil || u.URL.RawQuery != "" || u.URL.Fragment != "" || u.URL.Opaque != "":
		return fmt.Errorf("the upstream %q: write scheme, host and path only", u.URL.Redacted())
	case strings.HasPrefix(u.URL.Path, "//"):
		return fmt.Errorf("the upstream %q: its path begins with two slashes, which servers read as a host: write one", u.URL)
	case u.TLS != nil && u.URL.Scheme == "http":
		return fmt.Errorf("the upstream %q has a TLS setting: write https", u.URL)
	case u.DialTimeout < 0 || u.TLSTimeout < 0 || u.StallTimeout < 0 || u.KeepIdle < 0 || u.MaxIdle < 0 || u.MaxConns < 0:
		return fmt.Errorf("the upstream %q: a limit is negative: write a positive value, or leave it 0 for the default", u.URL)
	}
	return nil
}

// UpstreamDefaults returns an Upstream without a URL, whose limits are those that its
// zero fields stand for.
func UpstreamDefaults() Upstream { return new(Upstream).withDefaults() }

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
