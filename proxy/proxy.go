package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// A Proxy is a handler that sends requests on. Serve it through Server and Listen.
type Proxy struct{ table atomic.Pointer[table] }

// New returns a Proxy, and panics on what Check refuses.
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
// settings. It panics, and changes nothing, on what Check refuses.
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
	if r.ContentLength != 0 {
		allowBody(w, t.cfg.BodyTimeout)
	}
	if wrong := t.wrong(r); wrong != "" {
		t.refuse(w, r, requestInvalid, errors.New(wrong))
		return
	}
	found, ok := t.match(r, escapedPath(r))
	switch {
	case !ok:
		t.refuse(w, r, requestInvalid, errors.New("the path can be read in two ways"))
	case found == nil:
		t.refuse(w, r, noRoute, nil)
	default:
		t.names.strip(r.Header, found.TrustForwarded)
		r.Pattern = found.pattern
		found.ServeHTTP(w, r)
	}
}

// wrong says what is wrong with a request that net/http lets through.
func (t *table) wrong(r *http.Request) string {
	switch {
	case r.Method == http.MethodConnect || r.URL.Host != "" || r.URL.Scheme != "":
		return "the target is not a path of this server"
	case r.URL.Path == "" || r.URL.Path[0] != '/' || strings.IndexByte(r.RequestURI, '#') >= 0:
		return "the target is not a path"
	case !isMethod(r.Method):
		return "the method is not one"
	case !isHost(r.Host):
		return "the Host is not one"
	}
	if name := t.names.hidden(r.Header); name != "" {
		return "Connection names " + name
	}
	return ""
}

var (
	requestInvalid = httponce.Problem{
		Code: "request_invalid", Status: http.StatusBadRequest, Title: "The request can be misunderstood",
		Detail: "Nothing was done.",
	}
	noRoute = httponce.Problem{
		Code: "no_route", Status: http.StatusNotFound, Title: "There is no such path", Detail: "Nothing was done.",
	}
)

// refuse answers with a problem that is not a route's own.
func (t *table) refuse(w http.ResponseWriter, r *http.Request, p httponce.Problem, why error) {
	p.Err = why
	t.report(r, why)
	if r.ProtoMajor == 1 && p.Status == http.StatusBadRequest {
		w.Header().Set("Connection", "close") // whoever sends this is not believed further
	}
	if t.cfg.Problem != nil {
		t.cfg.Problem(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}

func (t *table) report(r *http.Request, err error) {
	if t.cfg.Report != nil && err != nil {
		t.cfg.Report(r, fmt.Errorf("proxy: %w", err))
	}
}
