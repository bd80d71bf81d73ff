package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// patterns find routes as http.ServeMux does. The ServeMux only matches patterns,
// and never serves a request.
type patterns struct {
	mux     *http.ServeMux
	routes  map[string]*route // by pattern
	inOrder []*route
	hosts   bool // at least one pattern has a host
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
	defer func() { _ = recover() }() // ServeMux panics on conflicts, which only the lower case makes
	p.add(rt.lower, rt)
}

// at returns the route of an escaped path, or nil.
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

// lowerPattern returns the pattern in lower case, except for its wildcards.
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

// hostName returns the name in a Host header as patterns have it: in lower case,
// without the port and without the dot of the root domain.
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
