package proxy

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Proxy is a handler that sends requests on. Serve it through Server and Listen.
type Proxy struct{ table atomic.Pointer[table] }

// New returns a Proxy, and panics on what Check rejects.
func New(routes []Route, cfg Config) *Proxy {
	p := &Proxy{}
	p.Reload(routes, cfg)
	return p
}

// Check says what is wrong with a table of routes: a *RouteError if it is one of
// them.
func Check(routes []Route, cfg Config) error {
	_, err := newTable(routes, cfg, nil)
	return err
}

// Reload puts other routes in place; requests that are under way end as they
// began. An Upstream that stays, the same pointer, keeps its connections and its
// settings. It panics, and changes nothing, on what Check rejects.
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
	for u, l := range before.links {
		if t.links[u] == nil {
			l.retire()
		}
	}
}

// Close closes the connections to upstreams that are not in use, and those in use
// once their answer has been read. Requests may still come.
func (p *Proxy) Close() {
	for _, l := range p.table.Load().links {
		l.retire()
	}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := p.table.Load()
	if r.ContentLength != 0 || r.ProtoMajor > 1 && len(r.Header["Content-Length"]) > 0 { // by HTTP/2 an empty body may lack its end
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
		t.names.strip(r.Header, t.trusts(r), found.KeepOverrides)
		r.Pattern = found.pattern
		found.ServeHTTP(w, r)
	}
}

// trusts reports whether a proxy of ours sends the request.
func (t *table) trusts(r *http.Request) bool {
	return t.cfg.TrustForwarded != nil && t.cfg.TrustForwarded(r)
}

// invalidReason says what is wrong with a request that net/http lets through.
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
		return errors.New("the method is not one")
	case !syntax.IsHost(r.Host):
		return errors.New("the Host is not one")
	case isLongList(r.Header["Connection"]):
		return errors.New("the Connection header names too many headers")
	}
	if name := t.names.listedInConnection(r.Header); name != "" {
		return errors.New("the Connection header names " + name)
	}
	if r.ProtoMajor > 1 {
		return malformedByHTTP2(r)
	}
	return nil
}

// malformedByHTTP2 says what makes a request malformed by HTTP/2 alone: RFC 9113,
// sections 8.1.1 and 8.2.1. By HTTP/1 net/http and the listener look at both.
func malformedByHTTP2(r *http.Request) error {
	switch lengths := r.Header["Content-Length"]; {
	case len(lengths) > 1:
		return errors.New("the Content-Length is given more than once")
	case len(lengths) == 1 && r.ContentLength == 0 && lengths[0] != "0":
		return errors.New("a body is announced and does not follow")
	}
	for name, values := range r.Header {
		for _, v := range values {
			if v != "" && (isBlank(v[0]) || isBlank(v[len(v)-1])) {
				return errors.New("there is a blank before or behind the value of " + name)
			}
		}
	}
	return nil
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isLongList(lists []string) bool {
	n := len(lists)
	for _, list := range lists {
		n += strings.Count(list, ",")
	}
	return n > h1.MaxConnectionNames
}

// isQuery reports whether a query ends where it seems to.
func isQuery(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || c == '#' {
			return false
		}
	}
	return true
}
