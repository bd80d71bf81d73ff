package httponce

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
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

	Methods   []string  // protected methods; default POST and PATCH; others pass, and a key on them is ignored
	Header    string    // default DefaultHeader
	KeyFormat KeyFormat // of the key; default: 1 to 255 of a-z A-Z 0-9 - _, quoted or bare
	Required  bool      // refuse a request without a key; default: it passes untouched

	// Fingerprint returns what must be the same in a repeat. It must not keep
	// body. A request for which it returns nothing is refused with status 500.
	// Default: a hash of method, path, query, content type, content encoding
	// and the body's bytes. The order of query parameters does not matter if
	// their names are plain and different; it does for names that a server may
	// take for the same, such as a, A, %61 and a[]. See also CanonicalJSON.
	Fingerprint func(r *http.Request, body []byte) []byte

	// FingerprintHeaders names request headers that must be the same in a
	// repeat, too, whatever Fingerprint and SkipFingerprint say. "Host" is the
	// request's host, with its port, in any case. Default: none.
	FingerprintHeaders []string

	// SkipFingerprint says that nothing is compared but FingerprintHeaders:
	// whoever sends a used key gets its answer. With it, Fingerprint must be
	// nil.
	SkipFingerprint bool

	// FingerprintSecret keys what is stored of a fingerprint (HMAC-SHA-256), so
	// that someone who can read the store can't find out a body of few possibilities,
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

	// StatusOf returns the HTTP status that an answer counts as when it is decided
	// whether the command completed or failed, for protocols that answer errors
	// with 200: see RPCStatus. The Result's Header has the trailers too, and its
	// Body is empty if it is too long to be stored. What it returns is not sent.
	// Default, and for a return value that is no status: the answer's own status.
	StatusOf func(answer onlyonce.Result) int

	// ReplayHeader says which of the handler's headers are stored and replayed.
	// It is told what is done by default: all are, but Set-Cookie, those whose
	// name looks like that of a credential (it contains token, secret, session,
	// password, api-key or the like), Date, Age and the headers of tracing.
	// Those of one connection never are. To store one more, return
	// byDefault || name == "X-Page-Token".
	ReplayHeader func(name string, byDefault bool) bool
	MaxAnswer    int // the longest body that is stored, in bytes; default 1 MiB; the repeat of a longer one gets no body

	// RunUnprotected runs the handler when the store can't be reached, with the
	// header "Idempotency-Protected: no" on the answer; a repeat may then run
	// again. Default: such a request is refused with 503.
	RunUnprotected bool

	// KeyInBody returns the key that the body of a request has, or "" if it has
	// none. It is asked about requests of Methods that have a body; the
	// handler finds the key in Header, and one that the client sends there
	// must be the same. The text of its error is shown to the client. Who
	// sends such a request must be known before its body is read, with a key
	// or without. A body with a Content-Encoding is refused with 415, because
	// it is not decoded. Default: keys are in Header only.
	KeyInBody func(body []byte) (string, error)

	// Refuse is asked about every keyed request before its body is read, with
	// its tenant, and may return why it is refused, such as for a limit of the
	// application's own. Default: nothing is refused.
	Refuse func(r *http.Request, tenant string) *Problem

	MaxInFlight int // keyed requests of one tenant at a time, waiting ones included; default 4096; more are refused with 429
	MaxNewKeys  int // new keys of one tenant a minute, and at once; default 600,000; then its keyed requests are refused with 429

	// MaxMemory is how many bytes the bodies of keyed requests may take at a
	// time, and MaxTenantMemory those of one tenant. The more tenants use some,
	// the less each of them may take, so that some is left for another: with
	// the defaults, one tenant may take a half, two a third each, three a
	// quarter each. One request of a tenant may take what is left. A quarter of
	// the memory is kept for bodies of up to 64 KiB.
	//
	// A body is counted before it is read, as it grows: with at most 1 MiB, or
	// as much as has come of it, ahead of that. One for which there is no room
	// waits for up to a second, and is then refused: with 503 if all, or 429
	// if the tenant's, is taken. At most 1024 wait, and tenants share these
	// places as they share the memory. While one waits, bodies of which next to
	// nothing has come for half a second end with 503, if the ResponseWriter
	// takes read deadlines. That is less than 16 KiB a second, or, of a body
	// that takes much, less than a tenth of it or of 1 MiB.
	//
	// Answers that are to be recorded or replayed may take as much again, by
	// the same rules, and none of what bodies may. One waits for up to a second
	// each time it grows, but not in a transaction. While one lacks memory,
	// answers of which a client takes nothing for 20 seconds end, if the
	// ResponseWriter takes write deadlines; they are recorded all the same. A
	// client behind a large send buffer can seem to take nothing while the
	// buffer empties; TCP_NOTSENT_LOWAT on its connection avoids that. For want
	// of memory an answer leaves as it comes and its body is not stored, one in
	// a transaction is rolled back, and a replay is refused as a body is.
	//
	// The default of MaxMemory is 64 MiB, or more if MaxBody or MaxAnswer ask
	// for it, and that of MaxTenantMemory is half of MaxMemory.
	MaxMemory       int64
	MaxTenantMemory int64

	// MaxStored is how many bytes of records this process may store within the
	// Guard's Keep, counting 512 for each and its answer's header and body, and
	// MaxTenantStored how many for one tenant. Beyond, all keyed requests are
	// refused with 503, or the tenant's with 429, repeats too. The counters
	// fall evenly, by the limit within Keep, and begin at zero when the
	// process starts; other processes have their own. Defaults: 64 GiB, and a
	// quarter of MaxStored.
	MaxStored       int64
	MaxTenantStored int64

	// Usage has the counters of memory and of stored bytes. Default: one for
	// all handlers of a Guard.
	Usage *Usage

	Problem func(http.ResponseWriter, *http.Request, Problem) // writes a refusal; default: Problem.ServeHTTP
	DocsURL string                                            // documents the problems; sent in Link and type
}

// SingleTenant is the Config.Tenant of a service whose callers all share one
// namespace of keys, and so may see each other's answers.
func SingleTenant(*http.Request) string { return "single" }

// The defaults of a Config.
const (
	DefaultHeader       = "Idempotency-Key"
	DefaultMaxKeyLength = 255
	DefaultMaxBody      = 1 << 20
	DefaultMaxAnswer    = 1 << 20
	DefaultMaxInFlight  = 4096
	DefaultMaxNewKeys   = 600_000
	DefaultMaxMemory    = 64 << 20
	DefaultMaxStored    = 64 << 30
)

const (
	defaultKeyChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	longestKey      = 1024 // as the root package takes
	shortestSecret  = 16
)

func nonsense(constructor, format string, args ...any) {
	panic("httponce: " + constructor + ": " + fmt.Sprintf(format, args...))
}

// withKeyDefaults fills in what says how a key is read.
func (c Config) withKeyDefaults(constructor string) Config {
	c.Header = http.CanonicalHeaderKey(cmp.Or(c.Header, DefaultHeader))
	f := &c.KeyFormat
	if f.MaxLength < 0 || f.MaxLength > longestKey {
		nonsense(constructor, "KeyFormat.MaxLength is %d: write 1 to %d, or leave it 0 for %d", f.MaxLength, longestKey, DefaultMaxKeyLength)
	}
	for i := range len(f.Chars) {
		if b := f.Chars[i]; b < ' ' || b > '~' {
			nonsense(constructor, "KeyFormat.Chars has the byte %#x: write printable ASCII characters", b)
		}
	}
	switch {
	case f.Syntax < StringOrToken || f.Syntax > TokenOnly:
		nonsense(constructor, "KeyFormat.Syntax is %d: write StringOrToken, StringOnly or TokenOnly", f.Syntax)
	case f.Syntax == TokenOnly && strings.ContainsAny(f.Chars, afterToken):
		nonsense(constructor, "KeyFormat.Chars has a character that a bare key can't have (one of %q): leave it out, or write another Syntax than TokenOnly", afterToken)
	}
	f.MaxLength = cmp.Or(f.MaxLength, DefaultMaxKeyLength)
	f.Chars = cmp.Or(f.Chars, defaultKeyChars)
	return c
}

func (c Config) withDefaults(constructor string) Config {
	nonsense := func(format string, args ...any) { nonsense(constructor, format, args...) }
	c = c.withKeyDefaults(constructor)
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
	if c.MaxBody < 0 || c.MaxAnswer < 0 || c.MaxWait < 0 || c.MaxInFlight < 0 || c.MaxNewKeys < 0 ||
		c.MaxMemory < 0 || c.MaxTenantMemory < 0 || c.MaxStored < 0 || c.MaxTenantStored < 0 {
		nonsense("a limit of the Config is negative: write a positive value, or leave it 0 for the default")
	}
	if s := c.MismatchStatus; s != 0 && s != http.StatusConflict && s != http.StatusUnprocessableEntity {
		nonsense("Config.MismatchStatus is %d: write 422 or 409", s)
	}
	c.FingerprintHeaders = slices.Clone(c.FingerprintHeaders)
	for i, name := range c.FingerprintHeaders {
		if name == "" {
			nonsense("Config.FingerprintHeaders has an empty name: leave it out")
		}
		c.FingerprintHeaders[i] = http.CanonicalHeaderKey(name)
	}
	slices.Sort(c.FingerprintHeaders)
	c.FingerprintHeaders = slices.Compact(c.FingerprintHeaders)
	if c.SkipFingerprint && c.Fingerprint != nil {
		nonsense("Config has a Fingerprint and says SkipFingerprint: leave out one of them")
	}
	if n := len(c.FingerprintSecret); c.FingerprintSecret != nil && n < shortestSecret {
		nonsense("Config.FingerprintSecret has %d bytes: give %d random ones or more", n, shortestSecret)
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxAnswer = cmp.Or(c.MaxAnswer, DefaultMaxAnswer)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.MaxNewKeys = cmp.Or(c.MaxNewKeys, DefaultMaxNewKeys)
	c.MaxMemory = cmp.Or(c.MaxMemory, max(DefaultMaxMemory, 4*c.MaxBody, 4*int64(c.MaxAnswer)))
	c.MaxTenantMemory = cmp.Or(c.MaxTenantMemory, c.MaxMemory/2)
	if least := min(c.MaxMemory, c.MaxTenantMemory); c.MaxBody > least-least/4 {
		nonsense("Config.MaxBody is %d, and of MaxMemory and MaxTenantMemory long bodies may take %d: raise these, or lower MaxBody", c.MaxBody, least-least/4)
	}
	c.MaxStored = cmp.Or(c.MaxStored, DefaultMaxStored)
	c.MaxTenantStored = cmp.Or(c.MaxTenantStored, (c.MaxStored+3)/4)
	c.MismatchStatus = cmp.Or(c.MismatchStatus, http.StatusUnprocessableEntity)
	if c.StoreStatus == nil {
		c.StoreStatus = storedByDefault
	}
	return c
}

// statusOf returns the status that an answer counts as.
func (c *Config) statusOf(answer onlyonce.Result) int {
	if status := c.StatusOf(answer); status >= 200 && status <= 599 {
		return status
	}
	return answer.Status
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
