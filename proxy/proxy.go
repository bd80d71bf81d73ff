package proxy

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce/internal/breakoff"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Proxy is a handler that forwards requests to upstreams. Serve it through Server
// and Listen.
type Proxy struct{ table atomic.Pointer[table] }

// New returns a Proxy. It panics if Check returns an error.
func New(routes []Route, cfg Config) *Proxy {
	p := &Proxy{}
	p.Reload(routes, cfg)
	return p
}

// Check returns an error if the routes or the settings are not valid: a *RouteError
// if one of the routes is not.
func Check(routes []Route, cfg Config) error {
	_, err := newTable(routes, cfg, nil)
	return err
}

// Reload replaces the routes and the settings. Requests that are in progress finish
// with the old ones. An Upstream that is in both, as the same pointer, keeps its
// connections and its settings. If Check returns an error, Reload panics and changes
// nothing.
func (p *Proxy) Reload(routes []Route, cfg Config) {
	before := p.table.Load()
	t, err := newTable(routes, cfg, before)
	if err != nil {
		panic(err)
	}
	p.table.Store(t)
	if before == nil {
		return
	}
	for u, l := range before.conns {
		if t.conns[u] == nil {
			l.retire()
		}
	}
}

// Close closes the idle connections to upstreams, and those in use once their
// response has been read. The Proxy can still be used.
func (p *Proxy) Close() {
	for _, l := range p.table.Load().conns {
		l.retire()
	}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := p.table.Load()
	if r.ContentLength != 0 || r.ProtoMajor > 1 && len(r.Header["Content-Length"]) > 0 { // over HTTP/2, the end of an empty body may never arrive
		slots.AllowBody(w, t.cfg.BodyTimeout)
	}
	if err := t.invalidReason(r); err != nil {
		t.cfg.reject(w, r, ambiguous(err), err)
		return
	}
	path, err := normalPath(escapedPath(r))
	if err != nil {
		t.cfg.reject(w, r, ambiguous(err), err)
		return
	}
	setPath(r, path)
	found, ok := t.match(r, path)
	switch {
	case !ok:
		t.cfg.reject(w, r, ambiguous(errManyReadings), errManyReadings)
	case found == nil:
		t.cfg.reject(w, r, noRoute, nil)
	default:
		t.dropUntrusted(r)
		t.sensitive.strip(r.Header, t.trusts(r), found.KeepOverrides)
		r.Pattern = found.pattern
		done := false
		defer func() {
			if !done { // it panicked, so that the client sees that the response is truncated
				breakoff.Response(w, r)
			}
		}()
		found.ServeHTTP(w, r)
		done = true
	}
}

// dropUntrusted deletes the headers in Config.Protected that the request may not
// bring.
func (t *table) dropUntrusted(r *http.Request) {
	for name := range t.sensitive.configured {
		if len(r.Header[name]) > 0 && t.cfg.TrustProtected != nil && !t.cfg.TrustProtected(r) {
			delete(r.Header, name)
		}
	}
}

// trusts reports whether the request comes from a trusted proxy.
func (t *table) trusts(r *http.Request) bool {
	return t.cfg.TrustForwarded != nil && t.cfg.TrustForwarded(r)
}

// A headerError is why a request is rejected because of a header, whose name its
// client may have invented.
type headerError struct{ why, name string }

func (e *headerError) Error() string { return e.why + e.name }

// Cause returns the error that all such errors wrap.
func (e *headerError) Cause() string { return e.why }

// invalidReason returns why a request that net/http accepts is rejected, or nil.
func (t *table) invalidReason(r *http.Request) error {
	switch {
	case r.Method == http.MethodConnect || r.URL.Host != "" || r.URL.Scheme != "":
		return errors.New("the target is not a path of this server")
	case r.URL.Path == "" || r.URL.Path[0] != '/':
		return errNoPath
	case strings.IndexByte(r.RequestURI, '#') >= 0:
		return errors.New("the target has a fragment")
	case !isQuery(r.URL.RawQuery):
		return errors.New("the query has a byte that must be percent-encoded")
	case !syntax.IsMethod(r.Method):
		return errors.New("the method is not an upper-case token")
	case !syntax.IsHost(r.Host):
		return errors.New("the Host is not the name of a host")
	case isLongList(r.Header["Connection"]):
		return errors.New("the Connection header names too many headers")
	}
	if name := t.sensitive.listedInConnection(r.Header); name != "" {
		return &headerError{"the Connection header names ", name}
	}
	if r.ProtoMajor > 1 {
		return malformedByHTTP2(r)
	}
	return nil
}

// malformedByHTTP2 returns why an HTTP/2 request is malformed (RFC 9113, sections
// 8.1.1 and 8.2.1), or nil. For HTTP/1, net/http and the listener check the same.
func malformedByHTTP2(r *http.Request) error {
	switch lengths := r.Header["Content-Length"]; {
	case len(lengths) > 1:
		return errors.New("there is more than one Content-Length")
	case len(lengths) == 1 && r.ContentLength == 0 && lengths[0] != "0":
		return errors.New("a body is announced and does not follow")
	}
	for name, values := range r.Header {
		for _, v := range values {
			if v != "" && (isBlank(v[0]) || isBlank(v[len(v)-1])) {
				return &headerError{"there is white space before or after the value of ", name}
			}
		}
	}
	return nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isLongList reports whether the Connection headers name too many headers.
func isLongList(lists []string) bool {
	n := len(lists)
	for _, list := range lists {
		n += strings.Count(list, ",")
	}
	return n > h1.MaxConnectionNames
}

// isQuery reports whether every parser finds the same end of a query.
func isQuery(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || c == '#' {
			return false
		}
	}
	return true
}
