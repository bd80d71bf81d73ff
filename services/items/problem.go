package items

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/services/internal/jsonbody"
)

// A problem is why a request was refused.
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
	crossOrigin  = problem{Detail: "A page of another origin may not write", Code: "CROSS_ORIGIN"}
	keyInvalid   = problem{Detail: "Idempotency-Key must appear exactly once and have 1 to 255 characters from a-z A-Z 0-9 - _", Code: "IDEMPOTENCY_KEY_INVALID"}
	bodyTooLarge = problem{Detail: "The body must have at most " + strconv.Itoa(maxBody) + " bytes", Code: "BODY_TOO_LARGE"}
	bodyEncoded  = problem{Detail: "The body has a Content-Encoding, and none is decoded here: send it without", Code: "CONTENT_ENCODING_UNSUPPORTED"}
	internal     = problem{Detail: "Something went wrong on our side", Code: "INTERNAL_ERROR"}
)

func invalid(detail string) problem { return problem{Detail: detail, Code: "VALIDATION_ERROR"} }

// render writes a refusal of the middleware as this API writes its own.
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

// write answers with a JSON document.
func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // all that is written here can be
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}
