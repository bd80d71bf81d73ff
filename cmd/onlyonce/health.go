package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// readyWithin bounds how long the store may take to answer a probe.
const readyWithin = 2 * time.Second

// health tells a supervisor whether the process lives and can do its work.
type health struct {
	checks   []func(context.Context) error // what must be right; an error's text is shown
	stopping atomic.Bool
}

// live answers as long as the process can answer at all.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "ok")
}

// ready answers 503 while a check fails or the server stops.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	if h.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	for _, check := range h.checks {
		if err := check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ready")
}
