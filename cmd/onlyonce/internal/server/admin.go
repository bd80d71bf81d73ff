package server

import (
	"context"
	_ "embed" // for the description
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/metrics"
)

//go:embed admin.yaml
var adminOpenAPI string

// HandleProbes adds the health and the metrics of a process to mux, and their description.
func HandleProbes(mux *http.ServeMux, h *Health, metrics http.Handler) {
	mux.HandleFunc("GET /healthz", h.Live)
	mux.HandleFunc("GET /readyz", h.Ready)
	mux.Handle("GET /metrics", metrics)
	HandleOpenAPI(mux, "admin", adminOpenAPI)
}

// An Admin serves the health, the metrics and the consoles of a process on a separate
// address. If that address is on this machine, only requests to localhost or to one of the
// allowed names are served.
type Admin struct {
	server   *http.Server
	Listener net.Listener
}

// NewAdmin listens on an address and serves h, m and the consoles there, which are named by
// their paths. It warns if people at other machines would log in over plain HTTP.
func NewAdmin(address string, allowed []string, h *Health, m *metrics.Set, consoles map[string]http.Handler, log *slog.Logger) (*Admin, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; name another address with --admin", err)
	}
	mux := http.NewServeMux()
	HandleProbes(mux, h, m.Handler())
	for path, console := range consoles {
		mux.Handle(path, console)
	}
	var handler http.Handler = mux
	if ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
		handler = OwnHosts(allowed, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "the admin address accepts only requests to localhost, to the address in --admin, or with onlyonce serve to a name in --allow-host", http.StatusForbidden)
		}, mux) // no page in a browser here reads it
	} else if canLogIn(consoles) {
		log.Warn("the console speaks HTTP, and other machines can reach it: anyone who can read the traffic can read tokens and sessions; listen on 127.0.0.1 and use an SSH tunnel, or put a server that speaks TLS in front of it", "address", ln.Addr().String())
	}
	return &Admin{New(handler, responseTimeout, log), ln}, nil
}

// Run serves until ctx ends, which is when nothing else is served any more.
func (a *Admin) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- a.server.Serve(a.Listener) }()
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
