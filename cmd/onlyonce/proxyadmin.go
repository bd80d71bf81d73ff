package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// An adminServer tells supervisors how a proxy or a relay is, on an address of its
// own. Where that is on this machine, it may be called under the names allowed.
type adminServer struct {
	server *http.Server
	ln     net.Listener
}

func newAdminServer(address string, allowed []string, h *health, m *metrics, log *slog.Logger) (*adminServer, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; name another address with --admin", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.live)
	mux.HandleFunc("GET /readyz", h.ready)
	mux.Handle("GET /metrics", m.handler())
	var handler http.Handler = mux
	if ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		handler = ownHosts(allowed, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the admin address accepts only requests to localhost, to the address in --admin, or with onlyonce serve to a name in --allow-host", http.StatusForbidden)
		}, mux) // no page in a browser here reads it
	}
	return &adminServer{newServer(handler, answerTimeout, log), ln}, nil
}

// run serves until ctx ends, which is when nothing else is served any more.
func (a *adminServer) run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- a.server.Serve(a.ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the admin address: %w", err)
	case <-ctx.Done():
	}
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if a.server.Shutdown(ended) != nil {
		return a.server.Close() // somebody still reads
	}
	return nil
}
