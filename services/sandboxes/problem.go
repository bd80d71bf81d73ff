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

// A problem is an error that is sent to the caller.
type problem struct {
	status     int
	code       string
	message    string
	details    map[string]any
	retryAfter time.Duration // 0: no Retry-After
}

func (p *problem) Error() string { return p.code + ": " + p.message }

func newProblem(status int, code, message string) *problem {
	return &problem{status: status, code: code, message: message, details: map[string]any{}}
}

func errInvalid(field, detail string) *problem {
	p := newProblem(http.StatusBadRequest, "validation_error", detail)
	if field != "" {
		p.message = field + ": " + detail
		p.details["field"] = field
	}
	return p
}

// errBody is the problem of an invalid body.
func errBody(err *jsonbody.FieldError) *problem { return errInvalid(err.Field, err.Detail) }

func errTooLarge() *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body must have at most %d bytes", maxBody))
}

func errEncoded() *problem {
	return newProblem(http.StatusUnsupportedMediaType, "content_encoding_unsupported", jsonbody.ErrEncoded.Error())
}

func errUnauthorized() *problem {
	return newProblem(http.StatusUnauthorized, "unauthorized", "a valid bearer token is required")
}

func errForbidden(why string) *problem { return newProblem(http.StatusForbidden, "forbidden", why) }

func errNotFound() *problem {
	return newProblem(http.StatusNotFound, "not_found", "there is no such resource")
}

func errMethod() *problem {
	return newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "this resource does not support that method")
}

func errConflict() *problem {
	return newProblem(http.StatusConflict, "conflict", "the idempotency key was used with a different request")
}

func errInProgress(after time.Duration) *problem {
	p := newProblem(http.StatusConflict, "request_in_progress", "the first request is still running; send the request again later")
	p.retryAfter = max(after, time.Second)
	return p
}

func errExpired(s sandbox) *problem {
	p := newProblem(http.StatusConflict, "sandbox_expired", "the sandbox has expired")
	p.details["sandbox_id"], p.details["expires_at"] = s.ID, s.ExpiresAt
	return p
}

func errInfinite(s sandbox) *problem {
	p := newProblem(http.StatusConflict, "sandbox_ttl_infinite", "the sandbox never expires: there is nothing to extend")
	p.details["sandbox_id"] = s.ID
	return p
}

func errTooManySessions(most int64, anonymous bool) *problem {
	message := fmt.Sprintf("an owner may have %d sessions at a time: stop one", most)
	if anonymous {
		message = fmt.Sprintf("the owners have %d sessions or more together, and callers without a token can start no more: stop one", most)
	}
	return newProblem(http.StatusTooManyRequests, "too_many_sessions", message)
}

func errTooManyRequests() *problem {
	p := newProblem(http.StatusTooManyRequests, "too_many_requests", serving.TooManyRequests)
	p.retryAfter = time.Second
	return p
}

// errLimit is the problem of a limit on new keys or stored bytes.
func errLimit(limited httponce.Problem) *problem {
	p := newProblem(limited.Status, limited.Code, limited.Detail)
	p.retryAfter = limited.RetryAfter
	return p
}

func errInternal() *problem {
	return newProblem(http.StatusInternalServerError, "internal_error", "an internal error occurred")
}

func errOutcomeUnknown() *problem {
	return newProblem(http.StatusInternalServerError, httponce.CodeOutcomeUnknown, "the request was carried out completely or not at all; it has no idempotency key, so sending it again could repeat it")
}

func errUnavailable() *problem {
	p := newProblem(http.StatusServiceUnavailable, "unavailable", "the service is unavailable; send the request again later with the same key")
	p.retryAfter = time.Second
	return p
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

// response returns the problem as the response to the request.
func (p *problem) response(requestID string) response {
	var content errorBody
	e := &content.Error
	e.Code, e.Message, e.RequestID, e.Details = p.code, p.message, requestID, p.details
	body, err := json.Marshal(content)
	if err != nil {
		panic(err) // details are strings and times, which can be encoded
	}
	return response{status: p.status, body: body, requestID: requestID, retryAfter: p.retryAfter}
}
