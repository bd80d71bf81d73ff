package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
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
		return nil, errors.New("proxy: there is no route: give one with the Pattern / to pass everything")
	case cfg.BodyTimeout < 0:
		return nil, errors.New("proxy: Config.BodyTimeout is negative: write a positive value, or leave it 0 for the default")
	}
	for _, name := range cfg.Protected {
		if err := checkName("Config.Protected", name); err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
	}
	t.names = namesOf(routes, cfg)
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
	made := newRoute(r, l, &t.cfg, t.usage)
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

// namesOf returns the headers that matter to the routes.
func namesOf(routes []Route, cfg Config) sensitiveHeaders {
	n := newNames()
	for _, name := range cfg.Protected {
		n.matter[http.CanonicalHeaderKey(name)] = true
		n.own[http.CanonicalHeaderKey(name)] = true
	}
	for _, r := range routes {
		if r.Idempotency.Header != "" {
			n.matter[http.CanonicalHeaderKey(r.Idempotency.Header)] = true
		}
		for _, name := range r.Idempotency.FingerprintHeaders {
			n.matter[http.CanonicalHeaderKey(name)] = true
		}
		for name := range r.SetHeader {
			n.matter[http.CanonicalHeaderKey(name)] = true
		}
	}
	return n
}
