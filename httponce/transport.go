package httponce

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A Transport is the client's half: it gives each request that changes
// something one idempotency key, and sends it again, with the same key and the
// same bytes, until there is an answer. Use it for servers that honour the
// header, and for no others: a server that ignores keys may run what is sent
// again a second time.
//
//	client := &http.Client{Transport: &httponce.Transport{}}
//
// Requests of other methods than Methods pass to Base untouched and are not
// sent again. A key that the caller has set is left as it is. A request that
// follows a redirect keeps the key of the one that was redirected.
//
// Sent again is what can only get better: after an error of the connection, a
// time-out of the attempt, an answer that broke off, 425, 429, 502, 503 and
// 504, and after a 409 that says that the first request is still running: one
// with Retry-After, or whose JSON document has the code "request_in_progress".
// Every other answer is returned, and so is every one with
// "Idempotency-Replayed: true", for it would come again. A certificate that is
// not trusted ends the call.
//
// Before a request is sent again the Transport waits as long as Retry-After says
// (RFC 9110, section 10.2.3; a date is compared with the answer's own Date) and
// up to a tenth more; without it, a random time of at most Backoff, which doubles
// with every attempt up to MaxBackoff. When no attempt is left, or the wait
// would reach past Budget or the context's deadline (http.Client.Timeout is
// one), the last answer is returned at once, or a NoAnswerError.
//
// Put no other retrier above a Transport: each of its tries would be a new
// request with a key of its own. What logs or signs each attempt goes into
// Base. A Transport is safe for concurrent use; its fields are not to be
// changed once it is used.
type Transport struct {
	Base http.RoundTripper // sends each attempt; default http.DefaultTransport

	Methods []string // that get a key; default POST and PATCH
	Header  string   // default "Idempotency-Key"
	Quoted  bool     // send the key as an RFC 9651 string ("k"); default: as a token (k), which more servers take

	MaxAttempts    int           // how often a request is sent at most; default 10; 1: never again
	Budget         time.Duration // no attempt begins later than this after the first; default 1 minute, so that the default lease of an attempt that died ends before
	AttemptTimeout time.Duration // how long an attempt may take until its answer, and the body that MaxAnswer covers, is there; default: as Base and the context say
	Backoff        time.Duration // the longest first wait; default 200 ms
	MaxBackoff     time.Duration // the longest wait, but for Retry-After; default 5 s

	// MaxBody is how long a body without Request.GetBody may be, in bytes:
	// it is read into memory before anything is sent. Default 1 MiB. A longer
	// one is an error, and nothing is sent: set GetBody, as
	// http.NewRequest does for buffers and strings, or a higher MaxBody.
	MaxBody int64

	// MaxAnswer is the longest body of an answer, in bytes, that is read whole
	// before the answer is returned, so that one that breaks off is asked for
	// again. Default 1 MiB. Longer ones, and those whose length is not
	// announced, stream: if one breaks off, send the request again with the
	// key in Response.Request.Header.
	MaxAnswer int64

	// Persist is called with each new key before its request is first sent; if
	// it returns an error, nothing is sent. A client that writes the key down, with
	// what it is for, can ask again after a crash: make the same request, and set
	// the key. It is not called for a key that the caller has set. The
	// request is a copy, with the key, that may be read to its body's end.
	Persist func(ctx context.Context, r *http.Request, key string) error
}

// A NoAnswerError says that a request was sent, in vain. Whether it took effect
// is not known; whoever sends it again with the same key learns that.
type NoAnswerError struct {
	Key      string // as it stood in the header
	Attempts int    // how often the request was sent
	Err      error  // the last attempt's, or the context's
}

func (e *NoAnswerError) Error() string {
	if e.Attempts == 1 {
		return fmt.Sprintf("httponce: no answer after 1 attempt: %v", e.Err)
	}
	return fmt.Sprintf("httponce: no answer after %d attempts: %v", e.Attempts, e.Err)
}

func (e *NoAnswerError) Unwrap() error { return e.Err }

// Timeout reports whether the last attempt ended because time was up.
func (e *NoAnswerError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// RoundTrip sends one request until there is an answer. It is what http.Client
// calls.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := t.withDefaults()
	if err != nil {
		closeBody(r)
		return nil, err
	}
	if !slices.Contains(c.Methods, r.Method) {
		return c.Base.RoundTrip(r)
	}
	if r.Context().Err() != nil {
		closeBody(r)
		return nil, context.Cause(r.Context())
	}
	s, err := newSending(&c, r)
	if err != nil {
		return nil, err
	}
	return s.run()
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if b, ok := base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

var unsafeMethods = []string{http.MethodPost, http.MethodPatch}

// withDefaults returns a copy with every field set, or says which makes no
// sense.
func (t *Transport) withDefaults() (Transport, error) {
	c := *t
	if c.MaxAttempts < 0 || c.Budget < 0 || c.AttemptTimeout < 0 || c.Backoff < 0 || c.MaxBackoff < 0 || c.MaxBody < 0 || c.MaxAnswer < 0 {
		return c, errors.New("httponce: Transport: a bound is negative: write a positive value, or leave it 0 for the default")
	}
	if c.Base == nil {
		c.Base = http.DefaultTransport
	}
	if c.Methods == nil {
		c.Methods = unsafeMethods
	}
	if c.Header == "" {
		c.Header = "Idempotency-Key"
	}
	c.Header = http.CanonicalHeaderKey(c.Header)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.Budget = cmp.Or(c.Budget, time.Minute)
	c.Backoff = cmp.Or(c.Backoff, 200*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 5*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, 1<<20)
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

// keyOf returns the key that a request has: its caller's, or that of the
// request from which it was redirected.
func (t *Transport) keyOf(r *http.Request) (values []string) {
	if values = r.Header[t.Header]; len(values) > 0 {
		return values
	}
	if r.Response != nil && r.Response.Request != nil {
		return r.Response.Request.Header[t.Header]
	}
	return nil
}
