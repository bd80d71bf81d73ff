package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// A Route says where the requests that it matches go, and which of them are
// protected.
type Route struct {
	Method  string // default: every method
	Pattern string // of http.ServeMux: a path as "/v1/orders/{id}", or with a host; the most specific one counts

	Upstream *Upstream

	// Guard protects the route's keyed requests as Once says; Once.Methods
	// defaults to Method if that is given, and Once.Operation to method and
	// pattern. Without a Guard all requests pass, with a key or without one.
	Guard *onlyonce.Guard
	Once  httponce.Config

	// KeyPointer is a JSON Pointer (RFC 6901) to the key in the body, a string
	// or a whole number. It is put into the header Once.Header, and one that
	// the client sends there must say the same. A body that is not JSON, or
	// has no such member, has no key; one that gives it twice is refused.
	KeyPointer string

	DontStoreBody bool // the answer's body is never stored, such as a new secret: a repeat gets status and header

	SetHeader  http.Header // sent to the upstream instead of the client's
	DropHeader []string    // of the client's, not sent to the upstream
	SetAnswer  http.Header // sent to the client, and stored, instead of the upstream's
	DropAnswer []string    // of the upstream's, neither sent to the client nor stored

	TrustForwarded bool  // another proxy of ours stands before: add to its Forwarded and X-Forwarded-*, and believe them
	NoUpgrade      bool  // no WebSockets; default: GET may become one; other upgrades, such as to HTTP/2, are never sent on
	MaxBody        int64 // of a request that is not protected, in bytes; default: any; more is refused with 413
}

// A Config says what holds for all routes. The zero Config is usable.
type Config struct {
	// Protected names further headers that no Connection header may name, such
	// as the one that says who the tenant is. Those of credentials, forwarding
	// and idempotency are protected without it.
	Protected []string

	// BodyTimeout is how long the body of a keyed request may take, and any of
	// up to 64 KiB; and how long another may pause between bytes; default 30s.
	BodyTimeout time.Duration

	Problem func(http.ResponseWriter, *http.Request, httponce.Problem) // writes a refusal that is not a route's own; default: Problem.ServeHTTP
	Report  func(r *http.Request, err error)                           // is told why a request was refused or its answer broke off; default: nobody is
}

const (
	defaultBodyTimeout = 30 * time.Second
	defaultMaxAnswer   = 1 << 20 // httponce's
)

// A RouteError says what is wrong with a route.
type RouteError struct {
	Route int // its index
	Err   error
}

func (e *RouteError) Error() string { return fmt.Sprintf("proxy: route %d: %v", e.Route, e.Err) }

func (e *RouteError) Unwrap() error { return e.Err }

func (r *Route) check() error {
	if err := r.Upstream.check(); err != nil {
		return err
	}
	if r.KeyPointer != "" {
		if _, err := parsePointer(r.KeyPointer); err != nil {
			return err
		}
	}
	for _, h := range []http.Header{r.SetHeader, r.SetAnswer} {
		if err := checkHeader(h); err != nil {
			return err
		}
	}
	switch {
	case r.Pattern == "" || strings.ContainsAny(r.Pattern, " \t"):
		return fmt.Errorf("the Pattern is %q: write a path such as /v1/orders/{id}, and the method into Method", r.Pattern)
	case r.MaxBody < 0:
		return errors.New("MaxBody is negative: write a positive value, or leave it 0 for no limit")
	case r.Guard == nil && (r.KeyPointer != "" || r.DontStoreBody || r.Once.Required):
		return errors.New("something is asked of keyed requests, but there is no Guard: give one")
	}
	return nil
}

// checkHeader says what can't be set.
func checkHeader(h http.Header) error {
	for name, vs := range h {
		ok := name != ""
		for i := range len(name) {
			ok = ok && isTokenByte[name[i]]
		}
		for _, v := range vs {
			ok = ok && isText(v)
		}
		switch canonical := http.CanonicalHeaderKey(name); {
		case !ok:
			return fmt.Errorf("the header %q: write a name of letters, digits and -, and a value without control characters", name)
		case ofConnection(canonical), canonical == "Content-Length", canonical == "Host":
			return fmt.Errorf("the header %s can't be set: it says how messages are read", canonical)
		}
	}
	return nil
}

// A route is a Route with all that serves it.
type route struct {
	Route
	table    *table
	link     *link
	pattern  string // of ServeMux: with the method
	once     http.Handler
	through  httputil.ReverseProxy
	methods  []string        // that are protected
	header   string          // of the key, for one in the body
	pointer  []string        // to the key in the body
	longest  int             // body of an answer that is held back
	replaced map[string]bool // headers of a client that are not sent on
}

func newRoute(r Route, l *link, t *table) *route {
	made := &route{Route: r, table: t, link: l, pattern: r.Pattern}
	if r.Method != "" {
		made.pattern = r.Method + " " + r.Pattern
		if made.Once.Methods == nil {
			made.Once.Methods = []string{r.Method}
		}
	}
	made.through = made.passer()
	made.methods = made.Once.Methods
	if made.methods == nil {
		made.methods = []string{http.MethodPost, http.MethodPatch} // httponce's
	}
	if r.KeyPointer != "" {
		made.pointer, _ = parsePointer(r.KeyPointer) // checked
	}
	made.header = http.CanonicalHeaderKey(orDefault(made.Once.Header, "Idempotency-Key"))
	made.longest = orDefault(r.Once.MaxAnswer, defaultMaxAnswer)
	made.replaced = map[string]bool{}
	for _, name := range r.DropHeader {
		made.replaced[http.CanonicalHeaderKey(name)] = true
	}
	for name := range r.SetHeader {
		made.replaced[http.CanonicalHeaderKey(name)] = true
	}
	if r.Guard != nil {
		made.once = httponce.Wrap(r.Guard, http.HandlerFunc(made.open), made.Once)
	}
	return made
}

func (rt *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rt.Guard == nil || isGRPC(r) && !rt.Once.Required {
		rt.pass(w, r)
		return
	}
	if rt.KeyPointer != "" && r.ContentLength != 0 && slices.Contains(rt.methods, r.Method) {
		if r = rt.keyFromBody(w, r); r == nil {
			return
		}
	}
	rt.once.ServeHTTP(w, r)
}

// open is what httponce lets through.
func (rt *route) open(w http.ResponseWriter, r *http.Request) {
	if a := onlyonce.Current(r.Context()); a != nil || w.Header().Get("Idempotency-Protected") != "" {
		rt.send(w, r, a)
		return
	}
	rt.pass(w, r)
}

// isGRPC reports whether a request is a gRPC call.
func isGRPC(r *http.Request) bool {
	ct := r.Header["Content-Type"]
	return r.ProtoMajor == 2 && len(ct) == 1 && strings.HasPrefix(ct[0], "application/grpc")
}

// refuse answers with a problem in the route's own form.
func (rt *route) refuse(w http.ResponseWriter, r *http.Request, p httponce.Problem, why error) {
	p.Err = why
	rt.table.report(r, why)
	h := w.Header()
	if url := rt.Once.DocsURL; url != "" {
		p.Type = url + "#" + p.Code
		h.Add("Link", "<"+url+`>; rel="describedby"`)
	}
	if rt.Once.Problem != nil {
		rt.Once.Problem(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}
