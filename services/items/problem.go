package items

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A problem is the body of a response that rejects a request.
type problem struct {
	Detail string `json:"detail"`
	Code   string `json:"error_code"`
	Key    string `json:"idempotency_key,omitempty"`
}

const (
	codeConflict   = "IDEMPOTENCY_KEY_CONFLICT"
	codeInProgress = "IDEMPOTENCY_KEY_IN_PROGRESS"
)

var (
	notFound     = problem{Detail: "Not found", Code: "NOT_FOUND"}
	otherMethod  = problem{Detail: "Method not allowed", Code: "METHOD_NOT_ALLOWED"}
	keyInvalid   = problem{Detail: "Idempotency-Key must appear exactly once and have 1 to 255 characters from a-z A-Z 0-9 - _", Code: "IDEMPOTENCY_KEY_INVALID"}
	bodyTooLarge = problem{Detail: "The body must have at most " + strconv.Itoa(maxBody) + " bytes", Code: "BODY_TOO_LARGE"}
	bodyEncoded  = problem{Detail: "The body has a Content-Encoding, which is not supported: send it without one", Code: "CONTENT_ENCODING_UNSUPPORTED"}
	tooMany      = problem{Detail: serving.TooManyRequests, Code: "TOO_MANY_REQUESTS"}
	internal     = problem{Detail: "An internal error occurred", Code: "INTERNAL_ERROR"}
)

func invalid(detail string) problem { return problem{Detail: detail, Code: "VALIDATION_ERROR"} }

// render writes a rejection of the middleware in the form of this API.
func (a *API) render(w http.ResponseWriter, r *http.Request, p httponce.Problem) {
	if p.Err != nil && p.Status >= 500 {
		a.cfg.Log.ErrorContext(r.Context(), "items: request failed", "code", p.Code, "error", p.Err)
	}
	mine := problem{Detail: p.Detail, Code: strings.ToUpper(p.Code)}
	switch p.Code {
	case httponce.CodeKeyInvalid:
		mine = keyInvalid
	case httponce.CodeKeyReused:
		mine = problem{"Idempotency key already used with different request body", codeConflict, p.Key}
	case httponce.CodeInProgress:
		mine = problem{"A request with this idempotency key is still running", codeInProgress, p.Key}
	case httponce.CodeBodyTooLarge:
		mine = bodyTooLarge
	case httponce.CodeBodyUnreadable:
		mine = invalid(jsonbody.Unfinished)
	case httponce.CodeCommandFailed:
		mine = internal
	}
	write(w, p.Status, mine)
}

// reject responds to a request that has no handler, or whose handler failed. The client
// does not learn why it failed.
func (a *API) reject(w http.ResponseWriter, r *http.Request, why error) {
	var forbidden *serving.Forbidden
	var field *jsonbody.FieldError
	switch {
	case errors.Is(why, serving.ErrNotFound):
		write(w, http.StatusNotFound, notFound)
	case errors.Is(why, serving.ErrMethodNotAllowed):
		write(w, http.StatusMethodNotAllowed, otherMethod)
	case errors.Is(why, serving.ErrTooManyRequests):
		w.Header().Set("Retry-After", "1")
		write(w, http.StatusTooManyRequests, tooMany)
	case errors.As(why, &forbidden):
		write(w, http.StatusForbidden, problem{Detail: forbidden.Why, Code: "CROSS_ORIGIN"})
	case errors.As(why, &field):
		write(w, http.StatusBadRequest, invalid(field.Error()))
	default:
		if r.Context().Err() == nil {
			a.cfg.Log.ErrorContext(r.Context(), "items: request failed", "path", r.URL.Path, "error", why)
		}
		write(w, http.StatusInternalServerError, internal)
	}
}

// write writes a JSON document as the response.
func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // every value that is passed can be encoded
	}
	serving.WriteJSON(w, status, body)
}
