package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/jsonkey"
)

// A Route says where the requests that it matches are sent, and which of them are
// protected.
type Route struct {
	Method string // default: every method

	// Pattern is a pattern of http.ServeMux without a method: a path such as
	// "/v1/orders/{id}", with or without a host. The most specific pattern applies.
	Pattern string

	Upstream *Upstream

	// Guard protects the route's keyed requests as Idempotency says.
	// Idempotency.Methods defaults to Method, if that is set, and
	// Idempotency.Operation to the method and the pattern. Idempotency.StatusOf
	// defaults to httponce.RPCStatus, except that a response with the code
	// deadline_exceeded is recorded like one of a command that completed. Without a
	// Guard, all requests pass through, with or without a key.
	//
	// Idempotency.UnknownStatus defaults to 502, 504, and 520 to 529, with which content
	// delivery networks respond. A server between the proxy and the upstream, such as a
	// load balancer or a sidecar, has statuses of its own for a request whose upstream it
	// has lost: Envoy, for example, responds with 503. After a 499, which says that the call
	// was canceled, the outcome is always unknown.
	Guard       *onlyonce.Guard
	Idempotency httponce.Config

	// KeyPointer is a JSON Pointer (RFC 6901) to the key in the body, a string or
	// a whole number. The upstream gets the key in the header Idempotency.Header;
	// if the client sends that header, both must be equal. A body without such a
	// member, or with null there, has no key. A body is rejected with 400 if it is
	// not strict JSON (a byte order mark, UTF-16, compression, NaN, and more than
	// 10,000 levels are not), if it contains the key twice, or if the key has
	// another type.
	//
	// The tenant of every request with a body must then be known, with or without
	// a key: the memory for the body is counted for that tenant.
	KeyPointer string

	// DontStoreBody keeps response bodies, such as a new secret, out of the store.
	// A repeat gets the status and the header only.
	DontStoreBody bool

	// SetHeader replaces headers of the request that is sent to the upstream.
	SetHeader http.Header

	// DropHeader names headers of the client that are not sent to the upstream, in
	// any spelling that a CGI-like server reads as the same name.
	DropHeader []string

	SetResponseHeader  http.Header // replaces headers of the upstream's response, before it is stored
	DropResponseHeader []string    // removes headers of the upstream's response, before it is stored

	// KeepOverrides passes on headers with which some servers replace the
	// request's method or path, such as X-HTTP-Method-Override and
	// X-Original-URL. By default they are dropped, because a client could use
	// them to reach a protected route disguised as an unprotected one.
	KeepOverrides bool

	// NoUpgrade forbids WebSockets. By default, a GET may become one. Other
	// upgrades, such as to HTTP/2, are never passed on.
	NoUpgrade bool

	// MaxBody is the largest body, in bytes, of a request that is not protected. A
	// larger one is rejected with 413. Default: no limit.
	MaxBody int64
}

// A Config has the settings that all routes share. The zero Config is usable.
type Config struct {
	// Protected names more headers that no Connection header may name and whose
	// other spellings are dropped, such as the one with the tenant. Headers of
	// credentials, forwarding and idempotency are always protected, and so are
	// every Idempotency.Header and Idempotency.FingerprintHeaders. A protected
	// name consists of letters, digits and -, because some servers read other
	// characters as equal. TrustProtected, and not TrustForwarded, decides whether
	// these headers are passed on.
	Protected []string

	// TrustProtected reports whether a request may bring the headers in Protected.
	// From any other request they are dropped. It is called for each of them that a
	// request has. Default: every request may.
	TrustProtected func(*http.Request) bool

	// TrustForwarded reports whether a request comes from a trusted proxy, for
	// example by its RemoteAddr. Forwarded and X-Forwarded-* of such a request are
	// extended, and other headers that identify the client, such as X-Real-IP,
	// Remote-User or X-Client-Cert, are passed on. From any other request they are
	// dropped. Default: no request is trusted.
	TrustForwarded func(*http.Request) bool

	// BodyTimeout is how long the body of a keyed request, and any body of up to
	// 64 KiB, may take to arrive. Longer bodies of requests without a key may
	// pause for as long between bytes; over HTTP/2 that holds only until their
	// response begins. Default 30s.
	BodyTimeout time.Duration

	// Usage counts the memory and the stored bytes of all routes whose
	// Idempotency.Usage is nil. Default: the Proxy's own, which survives Reload.
	Usage *httponce.Usage

	// Problem writes the rejections that do not belong to a route. Default:
	// Problem.ServeHTTP.
	Problem func(http.ResponseWriter, *http.Request, httponce.Problem)

	// OnError is called with the reason when a request is rejected or its response
	// breaks off. If err's text has a name that the client may have invented,
	// errors.As finds a method Cause() string in err, which returns the text without
	// the name. OnError may be called by several goroutines at once. Default: none.
	OnError func(r *http.Request, err error)
}

// DefaultBodyTimeout is the default of Config.BodyTimeout.
const DefaultBodyTimeout = 30 * time.Second

// A RouteError is the error of a route that is not valid.
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
		return errors.New("KeyPointer, DontStoreBody or Idempotency.Required is set, but there is no Guard: set one")
	}
	return nil
}

// checkName returns an error if the name of a header has other spellings that a
// CGI-like server reads as the same.
func checkName(setting, name string) error {
	if !httpfield.IsUnambiguous(name) {
		return fmt.Errorf("%s names %q, which has other spellings that some servers read as the same: write a name of letters, digits and - only", setting, name)
	}
	return nil
}

// checkHeader returns an error if a header can't be set.
func checkHeader(h http.Header) error {
	for name, vs := range h {
		ok := httpfield.IsToken(name)
		for _, v := range vs {
			ok = ok && httpfield.IsText(v)
		}
		switch canonical := http.CanonicalHeaderKey(name); {
		case !ok:
			return fmt.Errorf("the header %q: write a name of letters, digits and -, and a value without control characters", name)
		case isHopByHop(canonical), canonical == "Content-Length", canonical == "Host":
			return fmt.Errorf("the header %s can't be set: it determines how messages are read", canonical)
		}
	}
	return nil
}
