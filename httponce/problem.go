package httponce

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/internal/rejectedtx"
)

// These are the codes of a Problem, with their statuses.
const (
	CodeKeyMissing       = "idempotency_key_missing" // 400: a key is required
	CodeKeyInvalid       = "idempotency_key_invalid" // 400
	CodeTenantMissing    = "tenant_missing"          // 401: Config.Tenant returned ""
	CodeBodyTooLarge     = "body_too_large"          // 413
	CodeBodyEncoded      = "body_encoded"            // 415: the key may be in the body, but the body has a Content-Encoding
	CodeBodyUnreadable   = "body_unreadable"         // 400: the body is malformed or truncated
	CodeKeyReused        = "idempotency_key_reused"  // 422: the key was used for a different request
	CodeKeyExpired       = "idempotency_key_expired" // 410: the request came too late: its response is not kept any more
	CodeResponseOmitted  = "response_omitted"        // 410: the request was carried out, and its response was not stored; only if the empty response could be taken for an empty message, as in RPC protocols
	CodeInProgress       = "request_in_progress"     // 409: another request with the key is running
	CodeOutcomeUnknown   = "outcome_unknown"         // 409: it is unknown whether the command took effect; 500 if a handler of WrapTx, or the function of Do or DoTx, returns an onlyonce.Unknown error; 503 if a commit got no response
	CodeCommandFailed    = "command_failed"          // 500: the command failed and wrote no response
	CodeResponseTooLarge = "response_too_large"      // 500: the response is too large for a transaction, which was rolled back
	CodeTooManyRequests  = "too_many_requests"       // 429: the tenant's limits are reached
	CodeOverloaded       = "overloaded"              // 503: the process's limits are reached; nothing ran
	CodeStoreUnavailable = "store_unavailable"       // 503: nothing was carried out
)

// The limits that a Problem names. Each is a field of Config.
const (
	LimitInFlight     = resources.LimitInFlight     // MaxInFlight
	LimitNewKeys      = resources.LimitNewKeys      // MaxNewKeys
	LimitTenantStored = resources.LimitTenantStored // MaxTenantStored
	LimitStored       = resources.LimitStored       // MaxStored
	LimitTenantMemory = resources.LimitTenantMemory // MaxTenantMemory
	LimitMemory       = resources.LimitMemory       // MaxMemory
)

// A Problem describes why the middleware, not the handler, responded to a
// request. It is also the error that ReadKey returns.
type Problem struct {
	Code       string // one of the constants
	Status     int
	Title      string
	Detail     string
	Retryable  bool          // the same request with the same key may succeed later
	RetryAfter time.Duration // how long to wait before a retry; 0: a retry is not worthwhile, or the time is unknown
	Type       string        // a URI: Config.DocsURL#code, or about:blank
	Key        string        // the request's key, if it is well-formed
	Limit      string        // the limit that was reached, one of the constants, or empty; for logs and metrics, never for the client
	Err        error         // for logs, never for the client; may be nil
}

const (
	blankType   = "about:blank" // of a problem that no page documents (RFC 9457, section 4.2.1)
	problemType = "application/problem+json"
)

// Error returns the text for logs, which includes that of Err.
func (p Problem) Error() string {
	text := "httponce: " + p.Code
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	if p.Err != nil {
		text += ": " + p.Err.Error()
	}
	return text
}

func (p Problem) Unwrap() error { return p.Err }

// ServeHTTP writes the problem as an RFC 9457 document, with Retry-After if
// RetryAfter is set. If Type is empty, the document's type is about:blank, and
// its title is that of the status. It reveals neither Err nor anything about
// another request.
func (p Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if p.Type == "" {
		p.Type, p.Title = blankType, http.StatusText(p.Status)
	}
	doc, err := json.Marshal(struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Detail    string `json:"detail"`
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	}{p.Type, p.Title, p.Status, p.Detail, p.Code, p.Retryable})
	if err != nil {
		http.Error(w, p.Title, p.Status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Content-Length", strconv.Itoa(len(doc)))
	p.setRetryAfter(h)
	w.WriteHeader(p.Status)
	_, _ = w.Write(doc) // a client that is gone can't be told
}

// setRetryAfter sets Retry-After, in whole seconds.
func (p Problem) setRetryAfter(h http.Header) {
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
}

// These are the texts of the problems. Config.Header is replaced by the name of
// the header.
var (
	keyMissing = Problem{
		Code: CodeKeyMissing, Status: http.StatusBadRequest, Title: "The request has no idempotency key",
		Detail: "The request must have an idempotency key. Send a new random key with each new command, and the same key with each retry.",
	}
	keyInvalid = Problem{
		Code: CodeKeyInvalid, Status: http.StatusBadRequest, Title: "The idempotency key is not valid",
	}
	tenantMissing = Problem{
		Code: CodeTenantMissing, Status: http.StatusUnauthorized, Title: "The caller could not be identified",
		Detail: "The caller could not be identified, and a request with an idempotency key must come from a known caller. Nothing was done.",
	}
	bodyTooLarge = Problem{
		Code: CodeBodyTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "The request body is too large",
		Detail: "The request body is longer than the server accepts. Nothing was done.",
	}
	bodyEncoded = Problem{
		Code: CodeBodyEncoded, Status: http.StatusUnsupportedMediaType, Title: "The request body has a Content-Encoding",
		Detail: "The idempotency key is read from the request body, which must not have a Content-Encoding. Nothing was done.",
	}
	bodyUnreadable = Problem{
		Code: CodeBodyUnreadable, Status: http.StatusBadRequest, Title: "The request body is malformed or truncated",
		Detail: "The request body is malformed, truncated, or took too long to arrive. Nothing was done. Send the request again with the same key.", Retryable: true,
	}
	keyReused = Problem{
		Code: CodeKeyReused, Status: http.StatusUnprocessableEntity, Title: "The idempotency key was used for a different request",
		Detail: "The idempotency key was used before for a different request. Nothing was done. Use a new key for a different request.",
	}
	keyExpired = Problem{
		Code: CodeKeyExpired, Status: http.StatusGone, Title: "The response for this idempotency key is not kept any more",
		Detail: "A request with this idempotency key was carried out, or failed for good, so long ago that its response is not kept any more. Nothing was done. Look up what that request did, and use a new key only for a new request.",
	}
	responseOmitted = Problem{
		Code: CodeResponseOmitted, Status: http.StatusGone, Title: "The response for this idempotency key was not stored",
		Detail: "A request with this idempotency key was carried out, but its response was too long to be stored, or had to be kept out of the store. Nothing was done now. Look up what that request did, and use a new key only for a new request.",
	}
	inProgress = Problem{
		Code: CodeInProgress, Status: http.StatusConflict, Title: "A request with this idempotency key is in progress",
		Detail: "A request with this idempotency key is still running. Send the request again later with the same key to get its response.", Retryable: true,
	}
	outcomeUnknown = Problem{
		Code: CodeOutcomeUnknown, Status: http.StatusConflict, Title: "The outcome of the request is unknown",
		Detail: "The request, or an earlier one with the same key, may or may not have taken effect. Do not send it with another key.",
	}
	commitInDoubt = Problem{
		Code: CodeOutcomeUnknown, Status: http.StatusServiceUnavailable, Title: "The outcome of the request is unknown",
		Detail: "The request was carried out completely or not at all; the database did not confirm which. Send it again with the same key to find out.", Retryable: true, RetryAfter: time.Second,
	}
	commitInDoubtUnkeyed = Problem{
		Code: CodeOutcomeUnknown, Status: http.StatusInternalServerError, Title: "The outcome of the request is unknown",
		Detail: "The request was carried out completely or not at all; the database did not confirm which. It has no idempotency key, so sending it again could repeat it.",
	}
	commandFailed = Problem{
		Code: CodeCommandFailed, Status: http.StatusInternalServerError, Title: "The request failed",
		Detail: "The request failed and was not carried out. Send it again with the same key.", Retryable: true,
	}
	failureKept = Problem{
		Code: CodeCommandFailed, Status: http.StatusInternalServerError, Title: "The request failed",
		Detail: "The request failed. A retry with the same key gets the same response.",
	}
	fingerprintMissing = Problem{
		Code: CodeCommandFailed, Status: http.StatusInternalServerError, Title: "The request failed",
		Detail: "Nothing was done. The server is misconfigured.",
		Err:    errors.New("httponce: Config.Fingerprint returned nothing: return a hash of the request, or set Config.SkipFingerprint to compare nothing"),
	}
	responseTooLarge = Problem{
		Code: CodeResponseTooLarge, Status: http.StatusInternalServerError, Title: "The response is too large",
		Detail: "The request was not carried out, because its response is too large to be committed with it.",
	}
	tooMany = Problem{
		Code: CodeTooManyRequests, Status: http.StatusTooManyRequests, Title: "Too many requests",
		Detail: "The caller has reached one of its limits. Nothing was done. Send the request again later with the same key.", Retryable: true,
	}
	overloaded = Problem{
		Code: CodeOverloaded, Status: http.StatusServiceUnavailable, Title: "The server is busy",
		Detail: "The server has reached one of its limits. Nothing was done. Send the request again later with the same key.", Retryable: true,
		RetryAfter: time.Second,
	}
	storeUnavailable = Problem{
		Code: CodeStoreUnavailable, Status: http.StatusServiceUnavailable, Title: "The idempotency store is unavailable",
		Detail: "The store of idempotency keys is unavailable, so the request was not carried out. Send it again later with the same key.", Retryable: true, RetryAfter: 5 * time.Second,
	}
)

// longestRetryAfter is the longest Retry-After of a command that is running.
// Most commands end long before their lease does.
const longestRetryAfter = 5 * time.Second

// ProblemOf returns the Problem that tells a client about an error of
// onlyonce.Do, DoTx, TxGuard.Transact or ReadKey. Any other error counts as the command's
// failure, and its text is for logs only. If it is marked as onlyonce.Unknown or
// onlyonce.Final, the Problem says so.
func ProblemOf(err error) Problem {
	p := problemOf(err, commandFailed)
	var problem Problem
	if err == nil || p.Code == CodeInProgress || p.Code == CodeOutcomeUnknown || errors.As(err, &problem) {
		return p
	}
	if s := onlyonce.Failure(err); s.State == onlyonce.StateUnknown || s.Final {
		return failureProblem(s, err) // what the function's error wraps is not about this command
	}
	return p
}

// problemOf is ProblemOf with another problem for any other error.
func problemOf(err error, otherwise Problem) Problem {
	p := otherwise
	var problem Problem
	var busy *onlyonce.InFlightError
	switch {
	case errors.As(err, &problem):
		return problem
	case errors.Is(err, onlyonce.ErrMismatch):
		p = keyReused
	case errors.Is(err, onlyonce.ErrKeyExpired):
		p = keyExpired
	case errors.As(err, &busy):
		p = inProgress
		p.RetryAfter = min(max(busy.RetryAfter, time.Second), longestRetryAfter)
	case errors.Is(err, onlyonce.ErrLost), errors.Is(err, onlyonce.ErrInFlight):
		p = inProgress
		p.RetryAfter = time.Second
	case errors.Is(err, onlyonce.ErrInDoubt):
		p = commitInDoubt
		var unkeyed interface{ CannotBeRepeated() }
		if errors.As(err, &unkeyed) {
			p = commitInDoubtUnkeyed
		}
	case errors.Is(err, onlyonce.ErrUnknown), errors.Is(err, onlyonce.ErrCorrupt):
		p = outcomeUnknown
	case errors.Is(err, onlyonce.ErrFailed):
		p = failureKept
	case rejectedtx.In(err) != nil && errors.Is(err, onlyonce.ErrTooLarge):
		p = responseTooLarge
	case rejectedtx.In(err) != nil: // the store is not away
		p = commandFailed
	case errors.Is(err, onlyonce.ErrUnavailable):
		p = storeUnavailable
	}
	p.Err = err
	return p
}

// invalidKey returns the problem of a malformed key.
func invalidKey(wrong string) Problem {
	p := keyInvalid
	p.Detail = wrong
	return p
}
