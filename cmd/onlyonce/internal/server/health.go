package server

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// readyWithin bounds how long the store may take to answer a probe.
const readyWithin = 2 * time.Second

// Health tells a supervisor whether the process lives and can do its work.
type Health struct {
	Checks   []func(context.Context) error // what must be right; an error's text is shown
	stopping atomic.Bool
}

// Live answers as long as the process can answer at all.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "ok")
}

// Ready answers 503 while a check fails or the server stops.
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
