package sandboxes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// An answer is what a request gets, and what is stored of it.
type answer struct {
	Status    int             `json:"status"`
	RequestID string          `json:"request_id,omitempty"` // if the body names it
	Body      json.RawMessage `json:"body,omitempty"`

	replayed   bool
	retryAfter time.Duration
}

func newAnswer(status int, v any) (answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return answer{}, fmt.Errorf("write the answer: %w", err)
	}
	return answer{Status: status, Body: body}, nil
}

// write sends the answer.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	if a.replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if a.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((a.retryAfter+time.Second-1)/time.Second)))
	}
	if a.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if a.Body == nil {
		w.WriteHeader(a.Status)
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the caller may be gone
}
