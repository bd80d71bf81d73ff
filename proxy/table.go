package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// A table holds the routes and settings of a Proxy. It is immutable: Reload makes a
// new one.
type table struct {
	cfg       Config
	routes    patterns
	guards    patterns // all routes, in lower case; of those that differ only in case, one with a guard
	guarded   bool     // at least one route has a guard
	mixed     bool     // a pattern is not in lower case
	sensitive sensitiveHeaders
	conns     map[*Upstream]*upstreamConns
	usage     *httponce.Usage
}

func newTable(routes []Route, cfg Config, before *table) (*table, error) {
	t := &table{cfg: cfg, routes: newPatterns(), guards: newPatterns(), conns: map[*Upstream]*upstreamConns{}}
	t.cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, DefaultBodyTimeout)
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
		return nil, errors.New("proxy: there is no route: add one with the Pattern / to pass everything")
	case cfg.BodyTimeout < 0:
		return nil, errors.New("proxy: Config.BodyTimeout is negative: write a positive value, or leave it 0 for the default")
	}
	for _, name := range cfg.Protected {
		if err := checkName("Config.Protected", name); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	t.sensitive = sensitiveHeadersOf(routes, cfg)
	for i := range routes {
		if err := t.add(routes[i], before); err != nil {
			return nil, &RouteError{i, err}
		}
	}
	t.fold()
	return t, nil
}

func (t *table) add(r Route, before *table) (err error) {
	defer func() { // ServeMux and httponce.Wrap panic with a description of the mistake
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if err := r.check(); err != nil {
		return err
	}
	l := t.conns[r.Upstream]
	if l == nil && before != nil {
		l = before.conns[r.Upstream]
	}
	if l == nil {
		l = newUpstreamConns(r.Upstream)
	}
	made := newRoute(r, l, &t.cfg, &t.sensitive, t.usage)
	t.routes.add(made.pattern, made)
	t.conns[r.Upstream] = l
	t.guarded = t.guarded || r.Guard != nil
	t.mixed = t.mixed || made.lower != made.pattern
	return nil
}

// fold fills guards. Routes with a guard come first, because addLower skips a
// pattern that is already there.
func (t *table) fold() {
	for _, guarded := range []bool{true, false} {
		for _, rt := range t.routes.inOrder {
			if (rt.Guard != nil) == guarded {
				t.guards.addLower(rt)
			}
		}
	}
}

// match returns the route of a request for a path in normal form, or nil if there is
// none. It is not ok if servers may read the path as one that leads to another
// route.
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

// runsAnother reports whether a server that runs scripts may read the path as that
// of another route with a guard. The catch-all route / does not count.
func (t *table) runsAnother(r *http.Request, path string, found *route) bool {
	if !t.guarded {
		return false
	}
	for _, read := range scripts(path) {
		if other := t.lookUp(r, read); other != nil && other != found && other.Guard != nil && other.Pattern != "/" {
			return true
		}
	}
	return false
}

// lookUp returns the route of an escaped path. If the path leads to a route with a
// guard in another case, or without the slash at its end, that route is returned.
func (t *table) lookUp(r *http.Request, path string) *route {
	found := t.routes.at(r, path)
	if !t.guarded {
		return found
	}
	lower := folded(path)
	if lower != path || t.mixed {
		found = preferExactCase(found, t.guards.at(r, lower))
	}
	shorter := strings.TrimSuffix(lower, "/") // ServeMux itself finds a pattern that ends with a slash
	if shorter != lower && shorter != "" {
		found = preferExactPath(found, t.guards.at(r, shorter))
	}
	return found
}

// preferExactCase chooses between a, the route of the path as it is written, and b, its
// route if case is ignored. It returns b if b has a guard, unless the two patterns
// differ only in case.
func preferExactCase(a, b *route) *route {
	if b == nil || b.Guard == nil || a != nil && a.lower == b.lower {
		return a
	}
	return b
}

// preferExactPath chooses between a, the route of the path as it is written, and b, its
// route without the slash at its end. It returns b if b has a guard, unless a has a
// guard for exactly this path rather than for a tree of paths.
func preferExactPath(a, b *route) *route {
	if b == nil || b.Guard == nil || a != nil && a.Guard != nil && !strings.HasSuffix(a.pattern, "/") && !strings.HasSuffix(a.pattern, "...}") {
		return a
	}
	return b
}

// sensitiveHeadersOf returns the headers that the routes and the settings protect.
func sensitiveHeadersOf(routes []Route, cfg Config) sensitiveHeaders {
	n := newSensitiveHeaders()
	for _, name := range cfg.Protected {
		n.protected[http.CanonicalHeaderKey(name)] = true
		n.configured[http.CanonicalHeaderKey(name)] = true
	}
	for _, r := range routes {
		if r.Idempotency.Header != "" {
			n.protected[http.CanonicalHeaderKey(r.Idempotency.Header)] = true
		}
		for _, name := range r.Idempotency.FingerprintHeaders {
			n.protected[http.CanonicalHeaderKey(name)] = true
		}
		for name := range r.SetHeader {
			n.protected[http.CanonicalHeaderKey(name)] = true
		}
	}
	return n
}
