// Package server has the HTTP server that serve, proxy and relay share: a server and its
// life, its health, the address for supervisors, and the watch over a store.
package server

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy"
)

// How long a client may take after it has sent the header of a request.
const (
	bodyTimeout     = proxy.DefaultBodyTimeout
	IdleTimeout     = time.Minute
	responseTimeout = 10 * time.Second // to read the response
)

// The defaults of the settings that serve and proxy share.
const (
	DefaultListen          = "127.0.0.1:8080"
	DefaultShutdownTimeout = 30 * time.Second
)

// ShutdownUsage is the help of --shutdown-timeout.
const ShutdownUsage = "time that running requests get to finish after SIGINT or SIGTERM"

// New returns a server for h, which takes at most longest to respond. The header of a
// request has the limits of the proxy.
func New(h http.Handler, longest time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           limitBody(h, bodyTimeout),
		ReadHeaderTimeout: proxy.ReadHeaderTimeout,
		WriteTimeout:      bodyTimeout + longest + responseTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    proxy.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// limitBody limits how long a request's body may take to arrive. A ReadTimeout would
// also cancel the request's context if the handler takes longer.
func limitBody(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			conn := http.NewResponseController(w)
			if conn.SetReadDeadline(time.Now().Add(limit)) == nil {
				r.Body = &limitedBody{ReadCloser: r.Body, conn: conn}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// A limitedBody removes the connection's deadline once the body is read to its end.
type limitedBody struct {
	io.ReadCloser
	conn *http.ResponseController
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{}) // it was settable before
	}
	return n, err
}
