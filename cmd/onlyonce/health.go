package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// readyWithin bounds how long the store may take to answer a probe.
const readyWithin = 2 * time.Second

// health tells a supervisor whether the process lives and can do its work.
type health struct {
	stores   []onlyonce.Store
	stopping atomic.Bool
}

// live answers as long as the process can answer at all.
func (h *health) live(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "ok")
}

// ready answers 503 while the store can't be reached or the server stops.
func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	if h.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	for _, store := range h.stores {
		if _, err := store.Lookup(ctx, onlyonce.ID{Key: "readyz"}); !errors.Is(err, onlyonce.ErrNotFound) {
			http.Error(w, "the store can't be reached", http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ready")
}
