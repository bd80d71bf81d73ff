package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// readyWithin is how long the checks of a readiness probe may take.
const readyWithin = 2 * time.Second

// Health serves the liveness and readiness probes of a supervisor.
type Health struct {
	Checks   []func(context.Context) error // checks that must succeed; an error's text is shown
	stopping atomic.Bool
}

// Live responds as long as the process is able to respond at all.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "ok")
}

// Ready responds with 503 while a check fails or the server is stopping.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request) {
	if h.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	for _, check := range h.Checks {
		if err := check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ready")
}
