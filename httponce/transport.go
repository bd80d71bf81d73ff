package httponce

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce/internal/retry"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// A Transport is the client side. It gives each request that changes something
// one idempotency key, and retries it with the same key and the same bytes
// until there is a response. Use it only for servers that support the header: a
// server that ignores keys may run a retried request twice.
//
//	client := &http.Client{Transport: &httponce.Transport{}}
//
// Requests whose method is not in Methods pass to Base unchanged and are not
// retried. A key that the caller has set stays unchanged; one that is empty is an
// error, and nothing is sent. A request that follows a redirect keeps the key of
// the redirected request.
//
// A request is retried after a connection error, a timeout of the attempt, a
// truncated response with a status below 400, and the statuses 425, 429, 502,
// 503 and 504. It is also
// retried after a 409 that says that the first request is still running, which
// is one with Retry-After or with the code "request_in_progress" in its JSON
// document. Every other response is returned. So is every response with
// "Idempotency-Replayed: true", because a retry would get the same one. An
// untrusted certificate ends the call.
//
// Before a retry, the Transport waits as long as Retry-After says, and up to a
// tenth longer (RFC 9110, section 10.2.3; a date is compared with the
// response's own Date). Without Retry-After, it waits a random time of at most
// Backoff, which doubles with every attempt up to MaxBackoff. When no attempt
// is left, or the wait would go past Budget or the context's deadline
// (http.Client.Timeout is one), it returns the last response at once, or a
// NoResponseError if there is none.
//
// Do not put another retrying client around a Transport: each of its retries
// would be a new request with a new key. A RoundTripper that logs or signs each
// attempt belongs in Base. A Transport is safe for concurrent use. Its fields
// must not be changed after first use.
type Transport struct {
	Base http.RoundTripper // sends each attempt; default http.DefaultTransport

	Methods []string // the methods whose requests get a key, in capitals; default POST and PATCH
	Header  string   // default "Idempotency-Key"
	Quoted  bool     // send the key as an RFC 9651 string ("k"); default: as a token (k), which more servers accept

	// MaxAttempts is how often a request is given to Base at most; default 10; 1: no retries by
	// the Transport. Within an attempt, an http.Transport sends a request with an Idempotency-Key
	// again by itself if a connection that was used before ends without a response, and over
	// HTTP/2 if the server says that it has not processed the request.
	MaxAttempts    int
	Budget         time.Duration // no attempt begins later than this after the first; default 1 minute, which is longer than the default lease of an attempt whose process died
	AttemptTimeout time.Duration // how long an attempt may take until its response, and a body that MaxResponse covers, has arrived; default: no limit beyond those of Base and the context
	Backoff        time.Duration // the longest first wait; default 200 ms
	MaxBackoff     time.Duration // the longest wait without Retry-After; default 5 s

	// MaxBody is the maximum length of a body without Request.GetBody, in
	// bytes. Such a body is read into memory before anything is sent. Default 1
	// MiB. A longer body is an error, and nothing is sent. For longer bodies,
	// set GetBody, as http.NewRequest does for buffers and strings, or increase
	// MaxBody.
	MaxBody int64

	// MaxResponse is the longest response body, in bytes, that is read completely
	// before the response is returned, so that a truncated response can be
	// retried. Default 1 MiB. Longer bodies, and bodies of unannounced length,
	// stream, as do those that an http.Transport decompresses, unless its
	// DisableCompression is set: if one is truncated, send the request again with
	// the key in Response.Request.Header.
	MaxResponse int64

	// Persist is called with each new key before its request is first sent. If
	// it returns an error, nothing is sent. A client that stores the key and
	// its purpose can retry after a crash: it makes the same request and sets
	// the key. Persist is not called for a key that the caller has set. The
	// request that it gets is a copy that includes the key, and its body may be
	// read to the end.
	Persist func(ctx context.Context, r *http.Request, key string) error
}

// A NoResponseError says that a request was sent but got no response. Whether it
// took effect is unknown. To find out, send the request again with the same
// key.
type NoResponseError struct {
	Key      string // as sent in the header
	Attempts int    // how often the request was sent
	Err      error  // the last attempt's error, or the context's
}

func (e *NoResponseError) Error() string {
	if e.Attempts == 1 {
		return fmt.Sprintf("httponce: no response after 1 attempt: %v", e.Err)
	}
	return fmt.Sprintf("httponce: no response after %d attempts: %v", e.Attempts, e.Err)
}

func (e *NoResponseError) Unwrap() error { return e.Err }

// Timeout reports whether the last attempt timed out.
func (e *NoResponseError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// RoundTrip sends a request until there is a response. http.Client calls it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := t.withDefaults()
	if err != nil {
		retry.CloseBody(r)
		return nil, err
	}
	if !slices.Contains(c.Methods, r.Method) {
		return c.Base.RoundTrip(r)
	}
	key := c.keyOf(r)
	if slices.ContainsFunc(key, isEmptyKey) {
		retry.CloseBody(r)
		return nil, fmt.Errorf("httponce: nothing was sent: the request's %s is empty: set the key of its command, or leave the header out for a new one", c.Header)
	}
	fresh := len(key) == 0
	if fresh {
		key = []string{c.newKey()}
	}
	d, err := retry.New(c.options(), r, key)
	if err != nil {
		return nil, err
	}
	text := strings.Join(key, ", ")
	if fresh && c.Persist != nil {
		persist := func(ctx context.Context, r *http.Request) error { return c.Persist(ctx, r, text) }
		if err := d.Show(persist); err != nil {
			return nil, err
		}
	}
	resp, err := d.Run()
	if err != nil {
		return nil, &NoResponseError{Key: text, Attempts: d.Attempts(), Err: err}
	}
	return resp, nil
}

// options returns the options of a Transport with every field set.
func (t *Transport) options() *retry.Options {
	return &retry.Options{
		Base: t.Base, MaxAttempts: t.MaxAttempts, Budget: t.Budget, AttemptTimeout: t.AttemptTimeout,
		Backoff: t.Backoff, MaxBackoff: t.MaxBackoff, MaxBody: t.MaxBody, MaxResponse: t.MaxResponse,
		Protocol: retry.Protocol{Header: t.Header, Replayed: httpfield.Replayed, InProgress: CodeInProgress},
	}
}

// CloseIdleConnections closes the idle connections of Base.
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if b, ok := base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

var unsafeMethods = DefaultMethods()

// withDefaults returns a copy with every field set, or an error that names an
// invalid field.
func (t *Transport) withDefaults() (Transport, error) {
	c := *t
	if c.MaxAttempts < 0 || c.Budget < 0 || c.AttemptTimeout < 0 || c.Backoff < 0 || c.MaxBackoff < 0 || c.MaxBody < 0 || c.MaxResponse < 0 {
		return c, errors.New("httponce: Transport: a bound is negative: write a positive value, or leave it 0 for the default")
	}
	if c.Base == nil {
		c.Base = http.DefaultTransport
	}
	if c.Methods == nil {
		c.Methods = unsafeMethods
	}
	for _, m := range c.Methods {
		if !isMethod(m) {
			return c, fmt.Errorf("httponce: Transport: Methods has %q: write methods in capitals, such as POST", m)
		}
	}
	if c.Header == "" {
		c.Header = DefaultHeader
	}
	c.Header = http.CanonicalHeaderKey(c.Header)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.Budget = cmp.Or(c.Budget, time.Minute)
	c.Backoff = cmp.Or(c.Backoff, 200*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 5*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxResponse = cmp.Or(c.MaxResponse, DefaultMaxResponse)
	return c, nil
}

// newKey returns a key of at least 128 random bits, in letters and digits.
func (t *Transport) newKey() string {
	key := rand.Text()
	if t.Quoted {
		return `"` + key + `"`
	}
	return key
}

// isEmptyKey reports whether the value of the header has no key. A server that takes
// the request for one without a key would run every attempt.
func isEmptyKey(value string) bool {
	value = strings.TrimSpace(value)
	return value == "" || value == `""`
}

// keyOf returns the key of a request: the caller's, however it spells the header's
// name, or that of the request from which it was redirected.
func (t *Transport) keyOf(r *http.Request) (values []string) {
	if values = r.Header[t.Header]; len(values) > 0 {
		return values
	}
	for name, vs := range r.Header {
		if strings.EqualFold(name, t.Header) {
			values = append(values, vs...)
		}
	}
	if len(values) > 0 {
		return values
	}
	if r.Response != nil && r.Response.Request != nil {
		return r.Response.Request.Header[t.Header]
	}
	return nil
}
