package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// A table is what New and Reload make of routes; it does not change.
type table struct {
	cfg     Config
	routes  patterns
	guards  patterns // those of the routes with a guard, in lower case
	guarded bool     // there is one
	names   names
	links   map[*Upstream]*link
}

func newTable(routes []Route, cfg Config, before *table) (*table, error) {
	t := &table{cfg: cfg, routes: newPatterns(), guards: newPatterns(), links: map[*Upstream]*link{}}
	t.cfg.BodyTimeout = orDefault(cfg.BodyTimeout, defaultBodyTimeout)
	switch {
	case len(routes) == 0:
		return nil, errors.New("proxy: there is no route: give one with the Pattern / to pass everything")
	case cfg.BodyTimeout < 0:
		return nil, errors.New("proxy: Config.BodyTimeout is negative: write a positive value, or leave it 0 for the default")
	}
	t.names = newNames(routes, cfg)
	for i := range routes {
		if err := t.add(routes[i], before); err != nil {
			return nil, &RouteError{i, err}
		}
	}
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
	if r.Guard != nil {
		t.guarded = true
		t.guards.addLower(made)
	}
	return nil
}

// match returns the route of a request whose path, escaped, is given; nil: there
// is none. If the path may be read in another way that leads to a route with a
// guard, it is that one. It is not ok if two such routes are meant.
func (t *table) match(r *http.Request, escaped string) (found *route, ok bool) {
	plain := clean(escaped)
	found = t.routes.at(r, plain)
	if !isPlain(escaped) {
		if plain, ok = plainest(escaped); !ok {
			return nil, false
		}
		plain = (&url.URL{Path: plain}).EscapedPath()
		if found, ok = better(found, t.routes.at(r, plain)); !ok {
			return nil, false
		}
	}
	if !t.guarded {
		return found, true
	}
	shorter := strings.TrimSuffix(plain, "/") // ServeMux finds the pattern with a slash by itself
	if shorter != plain && shorter != "" {
		found = stricter(found, t.guards.at(r, shorter))
	}
	if lower := strings.ToLower(shorter); lower != shorter {
		found = stricter(found, t.guards.at(r, lower))
	}
	return found, true
}

// stricter returns b, to which the path leads without its last slash or in lower
// case, unless a has a guard for the path as it is written and not for a whole
// tree of them.
func stricter(a, b *route) *route {
	if b == nil || a != nil && a.Guard != nil && !strings.HasSuffix(a.pattern, "/") && !strings.HasSuffix(a.pattern, "...}") {
		return a
	}
	return b
}

// better returns the route with a guard, or a; it is not ok if two have one.
func better(a, b *route) (*route, bool) {
	switch {
	case b == nil || b == a:
		return a, true
	case a == nil:
		return b, true
	case b.Guard == nil:
		return a, true
	}
	return b, a.Guard == nil
}

// patterns find routes as http.ServeMux does, which never serves a request.
type patterns struct {
	mux    *http.ServeMux
	routes map[string]*route
}

func newPatterns() patterns { return patterns{http.NewServeMux(), map[string]*route{}} }

func (p *patterns) add(pattern string, rt *route) {
	p.mux.Handle(pattern, http.NotFoundHandler())
	p.routes[pattern] = rt
}

// addLower adds a route's pattern in lower case, unless there is one already.
func (p *patterns) addLower(rt *route) {
	defer func() { _ = recover() }() // in their own case, the two patterns differ
	p.add(lowerPattern(rt.pattern), rt)
}

func (p *patterns) at(r *http.Request, escaped string) *route {
	if escaped == r.URL.Path && r.URL.RawPath == "" && isPlain(escaped) {
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
	_, pattern := p.mux.Handler(&http.Request{Method: r.Method, Host: r.Host, URL: &u})
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
