package sandboxes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A fault is an error that is sent to the caller.
type fault struct {
	status     int
	code       string
	message    string
	details    map[string]any
	retryAfter time.Duration // 0: no Retry-After
}

func (f *fault) Error() string { return f.code + ": " + f.message }

func newFault(status int, code, message string) *fault {
	return &fault{status: status, code: code, message: message, details: map[string]any{}}
}

func errInvalid(field, problem string) *fault {
	f := newFault(http.StatusBadRequest, "validation_error", problem)
	if field != "" {
		f.message = field + ": " + problem
		f.details["field"] = field
	}
	return f
}

// errBody is the fault for an invalid body.
func errBody(f *jsonbody.Fault) *fault { return errInvalid(f.Field, f.Problem) }

func errTooLarge() *fault {
	return newFault(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body must have at most %d bytes", maxBody))
}

func errEncoded() *fault {
	return newFault(http.StatusUnsupportedMediaType, "content_encoding_unsupported", jsonbody.ErrEncoded.Error())
}

func errUnauthorized() *fault {
	return newFault(http.StatusUnauthorized, "unauthorized", "a valid bearer token is required")
}

func errForbidden(why string) *fault { return newFault(http.StatusForbidden, "forbidden", why) }

func errNotFound() *fault {
	return newFault(http.StatusNotFound, "not_found", "there is no such resource")
}

func errMethod() *fault {
	return newFault(http.StatusMethodNotAllowed, "method_not_allowed", "this resource does not support that method")
}

func errConflict() *fault {
	return newFault(http.StatusConflict, "conflict", "the idempotency key was used with a different request")
}

func errInProgress(after time.Duration) *fault {
	f := newFault(http.StatusConflict, "request_in_progress", "the first request is still running; send the request again later")
	f.retryAfter = max(after, time.Second)
	return f
}

func errExpired(s sandbox) *fault {
	f := newFault(http.StatusConflict, "sandbox_expired", "the sandbox has expired")
	f.details["sandbox_id"], f.details["expires_at"] = s.ID, s.ExpiresAt
	return f
}

func errInfinite(s sandbox) *fault {
	f := newFault(http.StatusConflict, "sandbox_ttl_infinite", "the sandbox never expires: there is nothing to extend")
	f.details["sandbox_id"] = s.ID
	return f
}

func errTooManySessions(most int64) *fault {
	return newFault(http.StatusTooManyRequests, "too_many_sessions", fmt.Sprintf("an owner may have %d sessions at a time: stop one", most))
}

func errTooManyRequests() *fault {
	f := newFault(http.StatusTooManyRequests, "too_many_requests", serving.TooManyRequests)
	f.retryAfter = time.Second
	return f
}

// errLimit is the fault for a limit on new keys or stored bytes.
func errLimit(p httponce.Problem) *fault {
	f := newFault(p.Status, p.Code, p.Detail)
	f.retryAfter = p.RetryAfter
	return f
}

func errInternal() *fault {
	return newFault(http.StatusInternalServerError, "internal_error", "an internal error occurred")
}

func errUnavailable() *fault {
	f := newFault(http.StatusServiceUnavailable, "unavailable", "the service is unavailable; send the request again later with the same key")
	f.retryAfter = time.Second
	return f
}

// An errorBody is the body of a response that rejects a request.
type errorBody struct {
	Error struct {
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		RequestID string         `json:"request_id"`
		Details   map[string]any `json:"details"`
	} `json:"error"`
}

// response returns the fault as the response to the request.
func (f *fault) response(requestID string) response {
	var content errorBody
	e := &content.Error
	e.Code, e.Message, e.RequestID, e.Details = f.code, f.message, requestID, f.details
	body, err := json.Marshal(content)
	if err != nil {
		panic(err) // details are strings and times, which can be encoded
	}
	return response{status: f.status, body: body, requestID: requestID, retryAfter: f.retryAfter}
}
