package sandboxes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// A response is the response to a request. The record of a keyed command stores its
// status and body.
type response struct {
	status     int
	body       json.RawMessage // nil: the response has none
	requestID  string          // if the body names it
	replayed   bool
	retryAfter time.Duration
}

// storedResponse returns the response of a keyed command, whether it ran now or is
// replayed.
func storedResponse(stored onlyonce.Answer[json.RawMessage]) (response, error) {
	resp := response{status: stored.Status, body: stored.Value, replayed: stored.Replayed}
	if resp.status >= http.StatusBadRequest {
		var body errorBody
		if err := json.Unmarshal(resp.body, &body); err != nil {
			return response{}, fmt.Errorf("read a stored error: %w: %w", onlyonce.ErrCorrupt, err)
		}
		resp.requestID = body.Error.RequestID
	}
	return resp, nil
}

func newResponse(status int, v any) (response, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return response{}, fmt.Errorf("encode the response: %w", err)
	}
	return response{status: status, body: body}, nil
}

// write sends the response.
func (r response) write(w http.ResponseWriter) {
	h := w.Header()
	if r.replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if r.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((r.retryAfter+time.Second-1)/time.Second)))
	}
	if r.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Cache-Control", "no-store")
	if r.body == nil {
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(r.status)
		return
	}
	serving.WriteJSON(w, r.status, r.body)
}
