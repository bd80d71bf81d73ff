package proxycmd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// handshakes counts the TLS handshakes with clients that fail. A failure counts as the
// client's, unless a handshake of the proxy with itself fails, too: then no client can
// connect, and the proxy is not ready.
type handshakes struct {
	now    func() *security // nil: plain HTTP
	failed *prometheus.CounterVec
	log    *slog.Logger

	mu    sync.Mutex
	tried time.Time
	err   error // of the last try
}

// tryEvery is how often the proxy does a handshake with itself at most.
const tryEvery = time.Second

func newHandshakes(in *prometheus.Registry, now func() *security, log *slog.Logger) *handshakes {
	h := &handshakes{now: now, log: log, failed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "onlyonce_proxy_tls_handshake_errors_total",
		Help: "Failed TLS handshakes with clients, by cause: the client, or the proxy's own settings (server), in which case no client can connect.",
	}, []string{"fault"})}
	for _, fault := range []string{"client", "server"} {
		h.failed.WithLabelValues(fault)
	}
	in.MustRegister(h.failed)
	return h
}

var errHandshakes = errors.New("TLS handshakes fail")

// check returns an error if clients can't connect. It is one of server.Health.Checks.
func (h *handshakes) check(context.Context) error {
	if h.try() != nil {
		return errHandshakes
	}
	return nil
}

// try does a handshake, unless the last one is less than tryEvery old, and logs the
// outcome if it has changed.
func (h *handshakes) try() error {
	s := h.now()
	if s == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.tried) < tryEvery {
		return h.err
	}
	before := h.err
	h.err = s.try()
	h.tried = time.Now()
	switch {
	case h.err != nil && before == nil:
		h.log.Error("no client can connect: TLS handshakes fail with the current settings", "error", h.err)
	case h.err == nil && before != nil:
		h.log.Info("clients can connect again: TLS handshakes succeed")
	}
	return h.err
}

// report counts and logs a client's handshake that failed.
func (h *handshakes) report(client net.Addr, err error) {
	if h.try() != nil {
		h.failed.WithLabelValues("server").Inc()
		return
	}
	h.failed.WithLabelValues("client").Inc()
	h.log.Debug("a client's TLS handshake failed", "client", client.String(), "error", err)
}
