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

// An answer is the response to a request. For a keyed command the record keeps
// its status and body.
type answer struct {
	status     int
	body       json.RawMessage // nil: the response has none
	requestID  string          // if the body names it
	replayed   bool
	retryAfter time.Duration
}

// storedAnswer returns the answer that a keyed command got, now or the first
// time.
func storedAnswer(stored onlyonce.Answer[json.RawMessage]) (answer, error) {
	ans := answer{status: stored.Status, body: stored.Value, replayed: stored.Replayed}
	if ans.status >= http.StatusBadRequest {
		var body errorBody
		if err := json.Unmarshal(ans.body, &body); err != nil {
			return answer{}, fmt.Errorf("read a stored error: %w: %w", onlyonce.ErrCorrupt, err)
		}
		ans.requestID = body.Error.RequestID
	}
	return ans, nil
}

func newAnswer(status int, v any) (answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return answer{}, fmt.Errorf("write the answer: %w", err)
	}
	return answer{status: status, body: body}, nil
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
	if a.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Cache-Control", "no-store")
	if a.body == nil {
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(a.status)
		return
	}
	serving.WriteJSON(w, a.status, a.body)
}
