package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// matched are routes, and what paths lead to them on a server that minds neither
// the case nor a slash at the end.
var matched = []struct {
	pattern string
	paths   *regexp.Regexp
}{
	{"/payments", regexp.MustCompile(`^/payments$`)},
	{"/orders/{id}/pay", regexp.MustCompile(`^/orders/[^/]+/pay$`)},
	{"/tree/", regexp.MustCompile(`^/tree($|/)`)},
	{"/", regexp.MustCompile(``)},
}

func matchedTable(t testing.TB) *table {
	t.Helper()
	guard := onlyonce.New(memstore.New(memstore.Config{}), onlyonce.Config{})
	up := &Upstream{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}
	var routes []Route
	for _, m := range matched {
		routes = append(routes, Route{Method: "POST", Pattern: m.pattern, Upstream: up, Guard: guard, Idempotency: httponce.Config{Tenant: httponce.SingleTenant}})
	}
	table, err := newTable(routes, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// routeOf returns the pattern of the first that a path, as a server reads it, leads
// to.
func routeOf(path string) string {
	path = strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(path), "ſ", "s"), "%c5%bf", "s")
	if short := strings.TrimSuffix(path, "/"); short != "" {
		path = short
	}
	for _, m := range matched {
		if m.paths.MatchString(path) {
			return m.pattern
		}
	}
	return ""
}

// sentPath returns the path that is sent for a target, and the route; it is not ok
// if the target is rejected.
func sentPath(t testing.TB, table *table, target string) (normal, pattern string, ok bool) {
	t.Helper()
	escaped, query, _ := strings.Cut(target, "?")
	normal, err := normalPath(escaped)
	if err != nil || !isQuery(query) {
		return "", "", false
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	setPath(r, normal)
	if sent := r.URL.EscapedPath(); sent != normal {
		t.Fatalf("%q is sent as %q, and not as %q", target, sent, normal)
	}
	if again, err := normalPath(normal); again != normal || err != nil {
		t.Fatalf("%q is not in normal form: %q, %v", normal, again, err)
	}
	found, ok := table.match(r, normal)
	if !ok {
		return "", "", false
	}
	return normal, strings.TrimPrefix(found.pattern, "POST "), true
}

// withQuery returns a path with the query of a target.
func withQuery(path, target string) string {
	if i := strings.IndexByte(target, '?'); i >= 0 {
		return path + target[i:]
	}
	return path
}

// wantOneReading fails if a server that reads the path as read takes it for that of
// another route.
func wantOneReading(t testing.TB, by, target, normal, pattern, read string, ok bool) {
	t.Helper()
	if !ok {
		return // it rejects the target, too
	}
	if read != normal {
		t.Fatalf("%q: %q is sent, and %s reads %q", target, normal, by, read)
	}
	once := decoded(read)
	for _, reading := range []string{read, once, decoded(once), withoutParameters(read), withoutParameters(once), decoded(withoutParameters(read)), backslashesAsSlashes(once), withoutDots(once), withoutQuery(once), decoded(withoutQuery(once))} {
		for _, path := range []string{reading, merged(reading)} {
			path, _ = resolve(path)
			if is := routeOf(path); is != pattern {
				t.Fatalf("%q: the route is %s, and %s may take the path for %q, that of %s", target, pattern, by, path, is)
			}
		}
	}
}

func TestPath_TheParsersOfServersReadAPathAsTheRouteDoes(t *testing.T) {
	table := matchedTable(t)
	for _, command := range parserPrograms {
		t.Run(command[0], func(t *testing.T) {
			p := startParser(t, command)
			rejected := 0
			for _, target := range targets(t) {
				normal, pattern, ok := sentPath(t, table, target)
				if !ok {
					rejected++
					continue
				}
				sent := withQuery(normal, target)
				read, ok := p.path(t, sent)
				wantOneReading(t, p.name, target, normal, pattern, read, ok)
				if model, is := modelled[p.name](sent); model != read || is != ok {
					t.Errorf("%s reads %q in %q, %v; the model %q, %v", p.name, read, sent, ok, model, is)
				}
			}
			if all := len(targets(t)); rejected < all/3 || rejected > all*2/3 {
				t.Errorf("%d of %d targets are rejected", rejected, all)
			}
		})
	}
}

// FuzzPathHasOneReading holds the route that is chosen, and the path that is sent,
// to what servers read: to models of their parsers, and to the parsers themselves
// where they are installed.
func FuzzPathHasOneReading(f *testing.F) {
	for _, target := range targets(f) {
		f.Add(target)
	}
	table := matchedTable(f)
	var parsers []*parser
	for _, command := range parserPrograms {
		if hasProgram(command[0]) {
			parsers = append(parsers, startParser(f, command))
		}
	}
	f.Fuzz(func(t *testing.T, target string) {
		normal, pattern, ok := sentPath(t, table, target)
		if !ok {
			return
		}
		sent := withQuery(normal, target)
		for name, model := range modelled {
			read, ok := model(sent)
			wantOneReading(t, "the model of "+name, target, normal, pattern, read, ok)
		}
		for _, p := range parsers {
			read, ok := p.path(t, sent)
			wantOneReading(t, p.name, target, normal, pattern, read, ok)
		}
	})
}
