package httponce

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A Config says which requests are protected, and how. Only Tenant has to be
// given; every other zero field means its documented default.
type Config struct {
	// Tenant names whose request it is, from what the server has verified: two
	// tenants may use one key, and never see each other's answers. A request
	// for which it returns "" is refused with 401. SingleTenant says that all
	// callers are one.
	Tenant func(*http.Request) string

	// Operation names what is asked for. Default: the method and the pattern
	// that the ServeMux matched ("POST /v1/orders"), or the method and the path
	// if there is no pattern. A function that returns "" makes a key one
	// namespace for all routes of a tenant.
	Operation func(*http.Request) string

	Methods      []string // protected methods; default POST and PATCH; others pass, and a key on them is ignored
	Header       string   // default "Idempotency-Key"
	Strict       bool     // take only an RFC 9651 string ("k"), not a bare token (k)
	MaxKeyLength int      // default 255, at most 1024
	KeyChars     string   // the characters a key may have; default a-z A-Z 0-9 - _
	Required     bool     // refuse a request without a key; default: it passes untouched

	// Fingerprint returns what must be the same in a repeat; nil: nothing is
	// compared. It must not keep body. Default: a hash of method, path, query,
	// content type and the body's bytes; the order of differently named
	// query parameters does not matter. See also CanonicalJSON and
	// NoFingerprint.
	Fingerprint func(r *http.Request, body []byte) []byte

	// FingerprintSecret keys what is stored of a fingerprint (HMAC-SHA-256), so
	// that who can read the store can't find out a body of few possibilities,
	// such as a card number, by trying them all. Everyone who shares the
	// records must have the same; after a change, repeats are mismatches.
	FingerprintSecret []byte

	MaxBody        int64         // of a keyed request, and of all that WrapTx serves, in bytes; default 1 MiB; more is refused with 413
	MismatchStatus int           // when the key was used for a different request; default 422; or 409
	MaxWait        time.Duration // the most that a client's "Prefer: wait=N" is granted; 0: Prefer is ignored and the Guard's Config.Wait counts

	// StoreStatus says which answers below 500 are stored and replayed.
	// Default: all but 401, 403, 407, 408, 425 and 429. After another, the
	// key is as if it had never been used.
	StoreStatus func(status int) bool
	KeepErrors  bool // replay an answer of 500 or more; default: a repeat runs again

	// ReplayHeader says which of the handler's headers are stored and replayed.
	// It is told what is done by default: all are, but Set-Cookie and what else
	// carries credentials or tokens, Date, Age and the headers of tracing.
	// Those of one connection never are.
	ReplayHeader func(name string, byDefault bool) bool
	MaxAnswer    int // the longest body that is stored, in bytes; default 1 MiB; the repeat of a longer one gets no body

	// RunUnprotected runs the handler when the store can't be reached, with the
	// header "Idempotency-Protected: no" on the answer; a repeat may then run
	// again. Default: such a request is refused with 503.
	RunUnprotected bool

	MaxInFlight int // keyed requests of one tenant at a time, waiting ones included; default 0: any number; more are refused with 429
	MaxNewKeys  int // new keys of one tenant a minute, and at once; default 0: any number; then its keyed requests are refused with 429

	Problem func(http.ResponseWriter, *http.Request, Problem) // writes a refusal; default: Problem.ServeHTTP
	DocsURL string                                            // documents the problems; sent in Link and type
}

// SingleTenant is the Config.Tenant of a service whose callers all share one
// namespace of keys, and so may see each other's answers.
func SingleTenant(*http.Request) string { return "single" }

const (
	defaultMaxKey    = 255
	longestKey       = 1024 // as the root package takes
	defaultMaxBody   = 1 << 20
	defaultMaxAnswer = 1 << 20
	shortestSecret   = 16
)

func (c Config) withDefaults(constructor string) Config {
	nonsense := func(format string, args ...any) {
		panic("httponce: " + constructor + ": " + fmt.Sprintf(format, args...))
	}
	if c.Tenant == nil {
		nonsense("Config.Tenant is nil: give a function that names whose request it is, or httponce.SingleTenant if all callers are one")
	}
	if c.Methods == nil {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range c.Methods {
		if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}, m) {
			nonsense("Config.Methods has %s, which needs no protection: name methods that change something, such as POST", m)
		}
	}
	if c.Header == "" {
		c.Header = "Idempotency-Key"
	}
	c.Header = http.CanonicalHeaderKey(c.Header)
	if c.MaxKeyLength < 0 || c.MaxKeyLength > longestKey {
		nonsense("Config.MaxKeyLength is %d: write 1 to %d, or leave it 0 for %d", c.MaxKeyLength, longestKey, defaultMaxKey)
	}
	if c.MaxBody < 0 || c.MaxAnswer < 0 || c.MaxWait < 0 || c.MaxInFlight < 0 || c.MaxNewKeys < 0 {
		nonsense("a limit of the Config is negative: write a positive value, or leave it 0 for the default")
	}
	if s := c.MismatchStatus; s != 0 && s != http.StatusConflict && s != http.StatusUnprocessableEntity {
		nonsense("Config.MismatchStatus is %d: write 422 or 409", s)
	}
	for i := range len(c.KeyChars) {
		if b := c.KeyChars[i]; b < ' ' || b > '~' {
			nonsense("Config.KeyChars has the byte %#x: write printable ASCII characters", b)
		}
	}
	if n := len(c.FingerprintSecret); c.FingerprintSecret != nil && n < shortestSecret {
		nonsense("Config.FingerprintSecret has %d bytes: give %d random ones or more", n, shortestSecret)
	}
	c.MaxKeyLength = orDefault(c.MaxKeyLength, defaultMaxKey)
	c.MaxBody = orDefault(c.MaxBody, defaultMaxBody)
	c.MaxAnswer = orDefault(c.MaxAnswer, defaultMaxAnswer)
	c.MismatchStatus = orDefault(c.MismatchStatus, http.StatusUnprocessableEntity)
	if c.StoreStatus == nil {
		c.StoreStatus = storedByDefault
	}
	return c
}

func orDefault[N int | int64 | time.Duration](given, otherwise N) N {
	if given == 0 {
		return otherwise
	}
	return given
}

// storedByDefault excepts the answers that say nothing about the command, only
// about who asked and when.
func storedByDefault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return true
}
