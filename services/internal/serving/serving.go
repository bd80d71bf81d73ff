// Package serving contains the common parts around the handlers of all APIs: routing, limits per
// caller, and purging.
package serving

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/onlyonce-go/onlyonce"
)

// WriteJSON writes a response with a JSON document.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// Observe returns an Observer that logs events, with keys in the form that showKey
// returns, and calls another Observer, if other is not nil.
func Observe(log *slog.Logger, showKey func(onlyonce.ID) string, other onlyonce.Observer) onlyonce.Observer {
	logs := onlyonce.SlogObserver(log, showKey)
	if other == nil {
		return logs
	}
	return func(ctx context.Context, e onlyonce.Event) {
		logs(ctx, e)
		other(ctx, e)
	}
}
