package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// A table is what New and Reload make of routes; it does not change.
type table struct {
	cfg     Config
	routes  patterns
	guards  patterns // all, in lower case; of those that differ in case only, one with a guard
	guarded bool     // there is one with a guard
	mixed   bool     // a pattern is not in lower case
	names   sensitiveHeaders
	links   map[*Upstream]*upstreamConns
	usage   *httponce.Usage
}

func newTable(routes []Route, cfg Config, before *table) (*table, error) {
	t := &table{cfg: cfg, routes: newPatterns(), guards: newPatterns(), links: map[*Upstream]*upstreamConns{}}
	t.cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, defaultBodyTimeout)
	switch {
	case cfg.Usage != nil:
		t.usage = cfg.Usage
	case before != nil:
		t.usage = before.usage
	default:
		t.usage = new(httponce.Usage)
	}
	switch {
	case len(routes) == 0:
		return nil, errors.New("proxy: there is no route: give one with the Pattern / to pass everything")
	case cfg.BodyTimeout < 0:
		return nil, errors.New("proxy: Config.BodyTimeout is negative: write a positive value, or leave it 0 for the default")
	}
	for _, name := range cfg.Protected {
		if err := checkName("Config.Protected", name); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	t.names = newNames(routes, cfg)
	for i := range routes {
		if err := t.add(routes[i], before); err != nil {
			return nil, &RouteError{i, err}
		}
	}
	t.fold()
	return t, nil
}

func (t *table) add(r Route, before *table) (err error) {
	defer func() { // of ServeMux and httponce, which say what is wrong
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if err := r.check(); err != nil {
		return err
	}
	l := t.links[r.Upstream]
	if l == nil && before != nil {
		l = before.links[r.Upstream]
	}
	if l == nil {
		l = newLink(r.Upstream)
	}
	made := newRoute(r, l, t)
	t.routes.add(made.pattern, made)
	t.links[r.Upstream] = l
	t.guarded = t.guarded || r.Guard != nil
	t.mixed = t.mixed || made.lower != made.pattern
	return nil
}

// fold finds the routes of paths whose case does not count, those with a guard
// first.
func (t *table) fold() {
	for _, guarded := range []bool{true, false} {
		for _, rt := range t.routes.inOrder {
			if (rt.Guard != nil) == guarded {
				t.guards.addLower(rt)
			}
		}
	}
}

// match returns the route of a request whose path, in normal form, is given; nil:
// there is none. It is not ok if servers may take the path for one that leads to
// another route.
func (t *table) match(r *http.Request, normal string) (found *route, ok bool) {
	found = t.lookUp(r, normal)
	if isPlain(normal) {
		return found, !t.runsAnother(r, normal, found)
	}
	all, ok := readings(normal)
	for i := range all {
		for _, path := range all[i].paths() {
			ok = ok && t.lookUp(r, path) == found && !t.runsAnother(r, path, found)
		}
	}
	return found, ok
}

// runsAnother reports whether a server of scripts takes a path for that of another
// route with a guard, unless that is the one for all that no other route matches.
func (t *table) runsAnother(r *http.Request, path string, found *route) bool {
	script, info, ok := splitScript(path)
	if !ok || !t.guarded {
		return false
	}
	for _, read := range []string{script, info} {
		if other := t.lookUp(r, read); other != nil && other != found && other.Guard != nil && other.Pattern != "/" {
			return true
		}
	}
	return false
}

// lookUp returns the route of an escaped path. If it leads to one with a guard
// without its last slash, or in another case, it is that one.
func (t *table) lookUp(r *http.Request, path string) *route {
	found := t.routes.at(r, path)
	if !t.guarded {
		return found
	}
	lower := folded(path)
	if lower != path || t.mixed {
		found = inAnyCase(found, t.guards.at(r, lower))
	}
	shorter := strings.TrimSuffix(lower, "/") // ServeMux finds the pattern with a slash by itself
	if shorter != lower && shorter != "" {
		found = stricter(found, t.guards.at(r, shorter))
	}
	return found
}

// inAnyCase returns b, to which the path leads if its case does not count, unless b
// has no guard, or a differs from it in case only.
func inAnyCase(a, b *route) *route {
	if b == nil || b.Guard == nil || a != nil && a.lower == b.lower {
		return a
	}
	return b
}

// stricter returns b, to which the path leads without its last slash, unless a has a
// guard for the path as it is written and not for a whole tree of them.
func stricter(a, b *route) *route {
	if b == nil || b.Guard == nil || a != nil && a.Guard != nil && !strings.HasSuffix(a.pattern, "/") && !strings.HasSuffix(a.pattern, "...}") {
		return a
	}
	return b
}

// patterns find routes as http.ServeMux does, which never serves a request.
type patterns struct {
	mux     *http.ServeMux
	routes  map[string]*route
	inOrder []*route
	hosts   bool // some have a host
}

func newPatterns() patterns { return patterns{mux: http.NewServeMux(), routes: map[string]*route{}} }

func (p *patterns) add(pattern string, rt *route) {
	if _, path, _ := strings.Cut(pattern, " "); pattern[0] != '/' && !strings.HasPrefix(path, "/") {
		pattern, p.hosts = withHostName(pattern), true
	}
	p.mux.Handle(pattern, http.NotFoundHandler())
	p.routes[pattern] = rt
	p.inOrder = append(p.inOrder, rt)
}

// addLower adds a route's pattern in lower case, unless there is one already.
func (p *patterns) addLower(rt *route) {
	defer func() { _ = recover() }() // in their own case, the two patterns differ
	p.add(rt.lower, rt)
}

func (p *patterns) at(r *http.Request, escaped string) *route {
	if !p.hosts && escaped == r.URL.Path && r.URL.RawPath == "" && isPlain(escaped) {
		_, pattern := p.mux.Handler(r)
		return p.routes[pattern]
	}
	u := url.URL{Path: escaped}
	if strings.IndexByte(escaped, '%') >= 0 {
		var err error
		if u.Path, err = url.PathUnescape(escaped); err != nil {
			return nil
		}
		u.RawPath = escaped
	}
	_, pattern := p.mux.Handler(&http.Request{Method: r.Method, Host: hostName(r.Host), URL: &u})
	return p.routes[pattern]
}

// lowerPattern returns a pattern for paths in lower case.
func lowerPattern(pattern string) string {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	} else {
		method += " "
	}
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		if !strings.HasPrefix(s, "{") {
			segments[i] = strings.ToLower(s)
		}
	}
	return method + strings.Join(segments, "/")
}

// hostName returns the name in a Host as it is in patterns: in lower case,
// without the port and the dot of the root.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}

// withHostName returns a pattern with its host as hostName writes it.
func withHostName(pattern string) string {
	method, rest, ok := strings.Cut(pattern, " ")
	if !ok {
		method, rest = "", pattern
	} else {
		method += " "
	}
	if i := strings.IndexByte(rest, '/'); i > 0 {
		rest = hostName(rest[:i]) + rest[i:]
	}
	return method + rest
}
