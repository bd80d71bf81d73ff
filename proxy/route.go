package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy/internal/jsonkey"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A Route says where the requests that it matches go, and which of them are
// protected.
type Route struct {
	Method  string // default: every method
	Pattern string // of http.ServeMux: a path as "/v1/orders/{id}", or with a host; the most specific one counts

	Upstream *Upstream

	// Guard protects the route's keyed requests as Idempotency says; its Methods
	// default to Method if that is given, and its Operation to method and
	// pattern. Without a Guard all requests pass, with a key or without one.
	Guard       *onlyonce.Guard
	Idempotency httponce.Config

	// KeyPointer is a JSON Pointer (RFC 6901) to the key in the body, a string
	// or a whole number. It is put into the header Idempotency.Header, and one that
	// the client sends there must say the same. A body without such a member,
	// or with null there, has no key. A body that is not JSON (with a byte
	// order mark, in UTF-16, compressed, with NaN or more than 10,000 levels
	// deep included), that gives the key twice, or as anything else, is
	// rejected with 400.
	// The tenant of a request with a body must then be known, with a key or
	// without: the body is read only on a tenant's account.
	KeyPointer string

	DontStoreBody bool // the answer's body is never stored, such as a new secret: a repeat gets status and header

	SetHeader          http.Header // sent to the upstream instead of the client's
	DropHeader         []string    // of the client's, not sent to the upstream, in no spelling that a CGI-like server takes for the same
	SetResponseHeader  http.Header // sent to the client, and stored, instead of the upstream's
	DropResponseHeader []string    // of the upstream's, neither sent to the client nor stored

	// KeepOverrides sends on the headers by which some servers take another
	// method or path than the request's, such as X-HTTP-Method-Override and
	// X-Original-URL. By default they are dropped: a client could otherwise
	// reach, by GET or on another path, what is protected here as POST.
	KeepOverrides bool

	NoUpgrade bool  // no WebSockets; default: GET may become one; other upgrades, such as to HTTP/2, are never sent on
	MaxBody   int64 // of a request that is not protected, in bytes; default: any; more is rejected with 413
}

// A Config says what holds for all routes. The zero Config is usable.
type Config struct {
	// Protected names further headers that no Connection header may name and
	// that are dropped in other spellings, such as the one that says who the
	// tenant is. Those of credentials, forwarding and idempotency are protected
	// without it, and so are each Idempotency.Header and Idempotency.FingerprintHeaders. A
	// protected name has letters, digits and - only: others are one to some
	// servers. Whether to believe a protected header is the caller's decision:
	// it passes also if TrustForwarded does not hold.
	Protected []string

	// TrustForwarded reports whether a request comes from a proxy of ours, by
	// its RemoteAddr for example. Forwarded and X-Forwarded-* of such a request
	// are added to, and other headers that say who the client is, such as
	// X-Real-IP, Remote-User or X-Client-Cert, are sent on; those of any other
	// request are dropped. Default: no request does.
	TrustForwarded func(*http.Request) bool

	// BodyTimeout is how long the body of a keyed request may take, and any of
	// up to 64 KiB; and how long another may pause between bytes, by HTTP/2 only
	// until its response begins; default 30s.
	BodyTimeout time.Duration

	// Usage counts the memory and the stored bytes of all routes whose
	// Idempotency.Usage is nil. Default: the Proxy's own, which stays over Reload.
	Usage *httponce.Usage

	Problem func(http.ResponseWriter, *http.Request, httponce.Problem) // writes a rejection that is not a route's own; default: Problem.ServeHTTP
	OnError func(r *http.Request, err error)                           // is told why a request was rejected or its answer broke off; default: nobody is
}

// DefaultBodyTimeout is the default of Config.BodyTimeout.
const DefaultBodyTimeout = 30 * time.Second

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
		if _, err := jsonkey.Parse(r.KeyPointer); err != nil {
			return err
		}
	}
	if r.Idempotency.Header != "" {
		if err := checkName("Idempotency.Header", r.Idempotency.Header); err != nil {
			return err
		}
	}
	for _, name := range r.Idempotency.FingerprintHeaders {
		if err := checkName("Idempotency.FingerprintHeaders", name); err != nil {
			return err
		}
	}
	for _, h := range []http.Header{r.SetHeader, r.SetResponseHeader} {
		if err := checkHeader(h); err != nil {
			return err
		}
	}
	switch {
	case r.Pattern == "" || strings.ContainsAny(r.Pattern, " \t"):
		return fmt.Errorf("the Pattern is %q: write a path such as /v1/orders/{id}, and the method into Method", r.Pattern)
	case r.MaxBody < 0:
		return errors.New("MaxBody is negative: write a positive value, or leave it 0 for no limit")
	case r.Guard == nil && (r.KeyPointer != "" || r.DontStoreBody || r.Idempotency.Required):
		return errors.New("something is asked of keyed requests, but there is no Guard: give one")
	}
	return nil
}

// checkName says what is wrong with the name of a header that is read: a CGI-like
// server would take other spellings for the same one.
func checkName(setting, name string) error {
	if name == "" || !isSpelled(name) {
		return fmt.Errorf("%s names %q, which a request may have in other spellings that some servers take for the same: write a name of letters, digits and - only", setting, name)
	}
	return nil
}

// checkHeader says what can't be set.
func checkHeader(h http.Header) error {
	for name, vs := range h {
		ok := name != "" && syntax.IsToken(name)
		for _, v := range vs {
			ok = ok && syntax.IsText(v)
		}
		switch canonical := http.CanonicalHeaderKey(name); {
		case !ok:
			return fmt.Errorf("the header %q: write a name of letters, digits and -, and a value without control characters", name)
		case isHopByHop(canonical), canonical == "Content-Length", canonical == "Host":
			return fmt.Errorf("the header %s can't be set: it says how messages are read", canonical)
		}
	}
	return nil
}
