package proxy

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

// Listen returns a listener whose connections carry only requests that can be
// read in one way, as RFC 9112 asks for: another is answered with 400, and its
// connection closed. With a TLS setting they are TLS connections, of TLS 1.2 or
// later unless it says otherwise; a client may choose HTTP/2, unless its
// NextProtos says otherwise. HTTP/2 in clear text passes too.
func Listen(l net.Listener, secure *tls.Config) *Listener {
	outer := &Listener{}
	outer.Listener = inbound.Listen(l, secure, func(client net.Addr, err error) {
		if outer.HandshakeFailed != nil {
			outer.HandshakeFailed(client, err)
		}
	})
	return outer
}

// A Listener is what Listen returns.
type Listener struct {
	net.Listener

	// HandshakeFailed is called with the client's address and the error of every
	// TLS handshake that failed, or was not finished within 5 seconds. It may be
	// called by several goroutines at once. Set it before the first Accept.
	HandshakeFailed func(client net.Addr, err error)
}

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
