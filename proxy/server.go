package proxy

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

// Server returns a server for a Proxy, or a handler round one, with limits
// against slow and greedy clients: 5 seconds for a request's header, of at most
// 32 KiB, two minutes for an idle connection, and a minute for a client that takes
// nothing of its answer, each by itself by HTTP/2. Of what an HTTP/2 client sends before
// it is read, at most 64 KiB are kept for each connection. A write deadline that the
// handler sets, or the Server's WriteTimeout, holds if it is earlier. It speaks HTTP/1
// and HTTP/2, in clear text too. Give its Serve what Listen returns.
//
// Its ConnContext lets the proxy close an HTTP/2 connection from which the client
// reads nothing at all while other requests wait for an Upstream's MaxConns or for
// memory. A ConnContext that replaces it should call it.
func Server(h http.Handler) *http.Server { return inbound.NewServer(h) }
