package httponce

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/keysyntax"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/shares"
)

// A Config controls which requests are protected, and how. Only Tenant is
// required. Every other field that is zero has its documented default.
type Config struct {
	// Tenant returns the tenant of a request. It must use only data that the
	// server has verified. Two tenants may use the same key and never see each
	// other's responses. A request for which it returns "" is rejected with
	// 401. Use SingleTenant if all callers are one tenant.
	Tenant func(*http.Request) string

	// Operation returns the name of the requested operation. Default: the
	// method and the pattern that the ServeMux matched ("POST /v1/orders"), or
	// the method and the path if there is no pattern. If it returns "", all
	// routes of a tenant share one namespace of keys. A command is found by its
	// operation: once a pattern has changed, if only in the name of a wildcard, a
	// repeat of an earlier command runs again, unless Operation returns the former name.
	Operation func(*http.Request) string

	Methods   []string  // protected methods, in capitals; default POST and PATCH; other requests pass through, and their keys are ignored
	Header    string    // default DefaultHeader
	KeyFormat KeyFormat // of the key; default: 1 to 255 characters from a-z A-Z 0-9 - _, quoted or bare
	Required  bool      // reject a request without a key; default: it passes through unchanged

	// Fingerprint returns the data that must be the same in a repeat. It must
	// not retain body. A request for which it returns nothing is rejected with
	// 500. Default: a hash of the method, path, query, content type, content
	// encoding and the body's bytes. The path includes a prefix that
	// http.StripPrefix has removed. The order of query parameters does not
	// matter if their names are plain and different. It matters for names that
	// a server may treat as the same, such as a, A, %61 and a[], and in a query
	// of more than 1,000 parameters. See also CanonicalJSON.
	Fingerprint func(r *http.Request, body []byte) []byte

	// FingerprintHeaders names request headers that must also be the same in a
	// repeat, whatever Fingerprint and SkipFingerprint are. "Host" is the
	// request's host with its port, compared without regard to case. Default:
	// none.
	FingerprintHeaders []string

	// SkipFingerprint says that nothing but FingerprintHeaders is compared: a
	// caller that sends a used key gets its response, whatever the request.
	// Fingerprint must then be nil.
	SkipFingerprint bool

	// FingerprintSecret is the key of an HMAC-SHA-256 over the stored
	// fingerprint. With it, a person who can read the store can't recover a
	// body that has few possible values, such as a card number, by trying them
	// all. All processes that share the records must have the same secret.
	// After a change, repeats of earlier requests are mismatches.
	FingerprintSecret []byte

	// Summary chooses the parts of a request that its record keeps, so that a person who has to decide
	// about an unknown outcome knows what to look for: the names of headers, and JSON
	// Pointers to strings, numbers and booleans in the body. If it is not nil, every record
	// gets a summary of up to onlyonce.LongestSummary bytes with the method, the path
	// without its query, and the chosen values, each cut after 200 bytes. It is stored when
	// the command is claimed. A value whose name, or the names that lead to it, look like
	// those of a secret (token, password, card_number and the like) is replaced by •••.
	// Anyone who can read the store can read a summary, also without the FingerprintSecret:
	// choose identifiers and amounts, not data of persons. Nil: records have none.
	Summary []string

	MaxBody        int64         // of a keyed request, and of every request that WrapTx serves, in bytes; default 1 MiB; a larger body is rejected with 413
	MismatchStatus int           // when the key was used for a different request; default 422; or 409
	MaxWait        time.Duration // the longest wait that a client's "Prefer: wait=N" can request; 0: Prefer is ignored, and the Guard's Config.Wait applies

	// StoreStatus reports whether a response with a status below 500, but not 499, is
	// stored and replayed. Default: all but 401, 403, 407, 408, 421, 425 and 429. A
	// 409 with Retry-After is never stored: it says that the first request is still
	// running, in a handler that knows keys itself. Nor is a 307 or 308 that leads to the
	// request's own host, path and query, or asks for HTTPS there, except in a
	// transaction: a client that follows it would get it again. Nor is a Problem with
	// CodeBodyUnreadable of a server inside that protects the request itself: a repeat can end
	// better. After a response that is not stored, the key is as if the request had not been
	// sent: what an earlier attempt left, unknown or failed, is still so. A Problem with
	// CodeOutcomeUnknown that is not Retryable, with status 409 or 500, leaves the outcome
	// unknown, whatever StoreStatus and KeepErrors are, except in a transaction.
	StoreStatus func(status int) bool

	// KeepErrors has a response of 500 or more, or 499, which says that the call was canceled,
	// replayed; default: a repeat runs again. If the handler wrote it after its context had
	// ended, the outcome is unknown, except in a transaction, and the Guard's Config decides
	// what happens to a repeat.
	KeepErrors bool

	// UnknownStatus reports whether it is unknown, after a response with this status of 500
	// or more, or 499, whether the command took effect. The Guard's Config decides what happens
	// to a repeat then, whatever KeepErrors is. Rows of a transaction are rolled back, so that
	// WrapTx does not call it. Default: after each of these, the command has failed.
	UnknownStatus func(status int) bool

	// StatusOf returns the HTTP status that decides whether the command
	// completed or failed, and that UnknownStatus gets. It is for protocols that return errors with status
	// 200. The Result's Header includes the trailers, and its Body is empty if it
	// is too long to be stored. StatusOf must not change the Result. The returned status is not sent. For a
	// return value that is not a status, the response's own status counts. Default: RPCStatus for
	// responses of gRPC, gRPC-Web and streams of the Connect protocol, and the response's
	// own status for all others.
	StatusOf func(response onlyonce.Result) int

	// ReplayHeader reports whether a header of the handler is stored and
	// replayed. byDefault is the default decision: all headers are stored
	// except Set-Cookie, headers whose name looks like that of a credential (it
	// contains token, secret, session, password, api-key or the like), Date,
	// Age and tracing headers. Hop-by-hop headers are never stored. To store
	// one more, return byDefault || name == "X-Page-Token".
	ReplayHeader func(name string, byDefault bool) bool
	MaxResponse  int // the longest response body that is stored, in bytes; default 1 MiB; a replay of a longer one, or of one that is larger than the store accepts, has no body, or is rejected with response_omitted

	// RunUnprotected runs the handler when the store can't be reached. The
	// response then has the header "Idempotency-Protected: no", and a repeat
	// may run again. If the store has a record of the command that this process can't
	// use, for example because it lacks the keys of cryptstore, or because it loses the
	// store while the request waits for another one, the request is rejected
	// with 503. Default: so is every request when the store can't be reached.
	RunUnprotected bool

	// KeyInBody returns the key in the body of a request, or "" if there is
	// none. It is called for requests of Methods that have a body. The handler
	// finds the key in Header, and a key that the client sends there must be
	// the same. The text of its error is shown to the client. The tenant of
	// such a request must be known before its body is read, whether it has a
	// key or not. A body with a Content-Encoding is rejected with 415, because
	// it is not decoded. Default: keys are in Header only.
	KeyInBody func(body []byte) (string, error)

	// Reject is called for every keyed request, with its tenant, before the
	// body is read. It may return a Problem to reject the request, for example
	// because of a limit of the application. Default: no request is rejected.
	Reject func(r *http.Request, tenant string) *Problem

	MaxInFlight int // concurrent keyed requests of one tenant, including waiting ones; default 4096; more are rejected with 429
	MaxNewKeys  int // new keys of one tenant per minute, which is also the size of a burst; default 600,000; beyond it, its keyed requests are rejected with 429

	// MaxMemory is how many bytes the bodies of keyed requests may take at a
	// time, and MaxTenantMemory is the same for one tenant. The more tenants
	// use memory, the less each of them may take, so that some is left for
	// another tenant. With the defaults, one tenant may take a half, two a
	// third each, and three a quarter each. One request of a tenant may take
	// all that is left. A quarter of the memory is reserved for bodies of up to 64
	// KiB.
	//
	// A body is counted as it grows, before it is read: at most 1 MiB, or as
	// much as has arrived, is counted ahead. A body for which there is no room
	// waits for up to a second. It is then rejected, with 503 if all memory is
	// taken or 429 if the tenant's share is. At most 1024 bodies wait, and
	// tenants share these places as they share the memory. While a body waits,
	// other bodies of which almost nothing has arrived for half a second end
	// with 503, if the ResponseWriter supports read deadlines. Almost nothing
	// means less than 16 KiB per second or, for a body that takes much memory,
	// less than a tenth of it or of 1 MiB.
	//
	// Responses that are recorded or replayed may take the same amount of
	// memory again, by the same rules; it is separate from that of bodies. Of a
	// header, only the part of a replay's beyond 4 KiB counts. A response waits for
	// up to a second each time it grows, but not in a transaction. While a
	// response lacks memory, other responses of which the client has read
	// nothing for 20 seconds end, if the ResponseWriter supports write
	// deadlines; they are recorded nevertheless. A client behind a large send
	// buffer can seem to read nothing while the buffer empties;
	// TCP_NOTSENT_LOWAT on its connection avoids that. A response for which
	// there is no memory streams, and its body is not stored. In a transaction,
	// it is rolled back, and a replay is rejected like a body.
	//
	// The default of MaxMemory is 48 MiB, or more if MaxBody or MaxResponse
	// require it. The default of MaxTenantMemory is half of MaxMemory.
	MaxMemory       int64
	MaxTenantMemory int64

	// MaxStored is how many bytes of records this process may store within the
	// Guard's Keep, and MaxTenantStored is the same for one tenant. A record,
	// whatever the outcome, counts as 512 bytes plus its error text and the
	// header and body of its response. Beyond MaxStored, all keyed requests are
	// rejected with 503; beyond MaxTenantStored, the tenant's are rejected with
	// 429. That includes repeats. The counters decrease steadily, by the limit
	// within one Keep; records of Guards with different Keeps are counted
	// separately, and their sum is limited. What is left of a record that is remembered
	// for longer than Keep is not counted after that. The counters start at zero with the
	// process, and each process has its own. Defaults: 64 GiB, and a quarter of
	// MaxStored.
	MaxStored       int64
	MaxTenantStored int64

	// Usage has the counters of memory and of stored bytes. Default: all
	// handlers of a Guard share one Usage.
	Usage *Usage

	Problem func(http.ResponseWriter, *http.Request, Problem) // writes a rejection; default: Problem.ServeHTTP
	DocsURL string                                            // the page that documents the problems; sent in Link and type
}

// SingleTenant is the Config.Tenant of a service whose callers all share one
// namespace of keys and may therefore see each other's responses.
func SingleTenant(*http.Request) string { return "single" }

// These are the defaults of a Config.
const (
	DefaultHeader       = "Idempotency-Key"
	DefaultMaxKeyLength = 255
	DefaultMaxBody      = 1 << 20
	DefaultMaxResponse  = 1 << 20
	DefaultMaxInFlight  = 4096
	DefaultMaxNewKeys   = 600_000
	DefaultMaxMemory    = 48 << 20
	DefaultMaxStored    = 64 << 30
)

const defaultKeyChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// DefaultMethods returns the methods that are protected, and that a Transport gives a
// key, by default.
func DefaultMethods() []string { return []string{http.MethodPost, http.MethodPatch} }

// CanProtect reports whether Config.Methods may contain a method: not if a request with
// that method can be repeated without harm, and not if the method is not in capitals, which no
// request would match.
func CanProtect(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect:
		return false
	}
	return isMethod(method)
}

// isMethod reports whether a method is written as requests have it: post is another method than POST.
func isMethod(method string) bool {
	return httpfield.IsToken(method) && method == strings.ToUpper(method)
}

func nonsense(constructor, format string, args ...any) {
	panic("httponce: " + constructor + ": " + fmt.Sprintf(format, args...))
}

// withKeyDefaults fills in the fields that control how a key is read.
func (c Config) withKeyDefaults(constructor string) Config {
	c.Header = http.CanonicalHeaderKey(cmp.Or(c.Header, DefaultHeader))
	if !httpfield.IsToken(c.Header) {
		nonsense(constructor, "Config.Header is %q, which no request can have: write the name of a header, such as %s", c.Header, DefaultHeader)
	}
	f := &c.KeyFormat
	if f.MaxLength < 0 || f.MaxLength > defaults.LongestIDPart {
		nonsense(constructor, "KeyFormat.MaxLength is %d: write 1 to %d, or leave it 0 for %d", f.MaxLength, defaults.LongestIDPart, DefaultMaxKeyLength)
	}
	for i := range len(f.Chars) {
		if b := f.Chars[i]; b < ' ' || b > '~' {
			nonsense(constructor, "KeyFormat.Chars has the byte %#x: write printable ASCII characters", b)
		}
	}
	switch {
	case f.Syntax < StringOrToken || f.Syntax > TokenOnly:
		nonsense(constructor, "KeyFormat.Syntax is %d: write StringOrToken, StringOnly or TokenOnly", f.Syntax)
	case f.Syntax == TokenOnly && !keysyntax.IsToken(f.Chars):
		nonsense(constructor, "KeyFormat.Chars has a character that a bare key can't have (a quote, comma, semicolon, space or tab): leave it out, or write another Syntax than TokenOnly")
	}
	f.MaxLength = cmp.Or(f.MaxLength, DefaultMaxKeyLength)
	f.Chars = cmp.Or(f.Chars, defaultKeyChars)
	return c
}

func (c Config) withDefaults(constructor string) Config {
	nonsense := func(format string, args ...any) { nonsense(constructor, format, args...) }
	c = c.withKeyDefaults(constructor)
	if c.Tenant == nil {
		nonsense("Config.Tenant is nil: set a function that returns the tenant of a request, or httponce.SingleTenant if all callers are one tenant")
	}
	if c.Methods = slices.Clone(c.Methods); len(c.Methods) == 0 {
		c.Methods = DefaultMethods()
	}
	for _, m := range c.Methods {
		if !CanProtect(m) {
			nonsense("Config.Methods has %q: write methods that change something, in capitals, such as POST", m)
		}
	}
	c = c.withLimitDefaults(constructor)
	if s := c.MismatchStatus; s != 0 && s != http.StatusConflict && s != http.StatusUnprocessableEntity {
		nonsense("Config.MismatchStatus is %d: write 422 or 409", s)
	}
	c.FingerprintHeaders = slices.Clone(c.FingerprintHeaders)
	for i, name := range c.FingerprintHeaders {
		if !httpfield.IsToken(name) {
			nonsense("Config.FingerprintHeaders has %q, which no request can have: write the name of a header, or leave it out", name)
		}
		c.FingerprintHeaders[i] = http.CanonicalHeaderKey(name)
	}
	slices.Sort(c.FingerprintHeaders)
	c.FingerprintHeaders = slices.Compact(c.FingerprintHeaders)
	if c.SkipFingerprint && c.Fingerprint != nil {
		nonsense("Config has a Fingerprint and says SkipFingerprint: leave out one of them")
	}
	if n := len(c.FingerprintSecret); c.FingerprintSecret != nil && n < defaults.ShortestSecret {
		nonsense("Config.FingerprintSecret has %d bytes: set at least %d random ones", n, defaults.ShortestSecret)
	}
	c.FingerprintSecret = slices.Clone(c.FingerprintSecret)
	c.Summary = slices.Clone(c.Summary)
	if _, err := newSummarizer(c.Summary); err != nil {
		nonsense("%v", err)
	}
	c.MismatchStatus = cmp.Or(c.MismatchStatus, http.StatusUnprocessableEntity)
	if c.StoreStatus == nil {
		c.StoreStatus = storedByDefault
	}
	return c
}

// withLimitDefaults fills in the limits.
func (c Config) withLimitDefaults(constructor string) Config {
	if c.MaxBody < 0 || c.MaxResponse < 0 || c.MaxWait < 0 || c.MaxInFlight < 0 || c.MaxNewKeys < 0 ||
		c.MaxMemory < 0 || c.MaxTenantMemory < 0 || c.MaxStored < 0 || c.MaxTenantStored < 0 {
		nonsense(constructor, "a limit of the Config is negative: write a positive value, or leave it 0 for the default")
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxResponse = cmp.Or(c.MaxResponse, DefaultMaxResponse)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.MaxNewKeys = cmp.Or(c.MaxNewKeys, DefaultMaxNewKeys)
	c.MaxMemory = cmp.Or(c.MaxMemory, max(DefaultMaxMemory, 4*c.MaxBody, 4*int64(c.MaxResponse)))
	c.MaxTenantMemory = cmp.Or(c.MaxTenantMemory, shares.Memory(c.MaxMemory))
	if most := c.mostMemory(); c.MaxBody > most {
		nonsense(constructor, "Config.MaxBody is %d, but long bodies may take only %d of MaxMemory and MaxTenantMemory: raise these, or lower MaxBody", c.MaxBody, most)
	}
	c.MaxStored = cmp.Or(c.MaxStored, DefaultMaxStored)
	c.MaxTenantStored = cmp.Or(c.MaxTenantStored, shares.Stored(c.MaxStored))
	return c
}

// mostMemory returns how many bytes of memory one long body or response may take.
func (c *Config) mostMemory() int64 { return shares.Long(min(c.MaxMemory, c.MaxTenantMemory)) }

// statusOf returns the status that decides the outcome of a response.
func (c *Config) statusOf(response onlyonce.Result) int {
	of := c.StatusOf
	if of == nil {
		of = RPCStatus
	}
	if status := of(response); status >= 200 && status <= 599 {
		return status
	}
	return response.Status
}

// stores reports whether a response with a status below 500 is stored.
func (c *Config) stores(status int, h http.Header) bool {
	isRunning := status == http.StatusConflict && len(h["Retry-After"]) > 0
	return !isRunning && c.StoreStatus(status)
}

// storedByDefault is false for responses that say nothing about the command,
// only about the caller or the time of the request.
func storedByDefault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return true
}

// longestUnread is how long a client may read nothing of a piece of its response
// while others wait for memory. A client that reads 10 KiB per second is faster
// than that, even on a loopback interface, where its window opens by 128 KiB at
// a time, if its connection keeps little unsent data (TCP_NOTSENT_LOWAT).
const longestUnread = 20 * time.Second

// limits returns the limits of a Config that has its defaults.
func (c *Config) limits() resources.Limits {
	return resources.Limits{
		InFlight: c.MaxInFlight, NewKeys: c.MaxNewKeys,
		Memory: c.MaxMemory, TenantMemory: c.MaxTenantMemory,
		Stored: c.MaxStored, TenantStored: c.MaxTenantStored,
		Unread: longestUnread,
	}
}
