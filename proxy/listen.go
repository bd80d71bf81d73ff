package proxy

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

// Listen returns a listener whose connections carry only requests that can be read
// in one way, as RFC 9112 requires, and that have at most 1,000 header fields. Any
// other request gets 400, and its connection is closed. With a TLS configuration,
// the connections use TLS, of version 1.2 or later unless MinVersion is set, and
// clients can choose HTTP/2 unless NextProtos is set. HTTP/2 in clear text is
// accepted, too.
func Listen(l net.Listener, secure *tls.Config) *Listener {
	outer := &Listener{}
	outer.Listener = inbound.Listen(l, secure, func(client net.Addr, err error) {
		if outer.HandshakeFailed != nil {
			outer.HandshakeFailed(client, err)
		}
	})
	return outer
}

// A Listener accepts connections as Listen describes.
type Listener struct {
	net.Listener

	// HandshakeFailed is called with the client's address and the error of every
	// TLS handshake that failed, or was not finished within 5 seconds. It may be
	// called by several goroutines at once. Set it before the first Accept.
	HandshakeFailed func(client net.Addr, err error)
}

// The limits that Server sets on the header of a request.
const (
	ReadHeaderTimeout = inbound.ReadHeaderTimeout // 5 seconds
	MaxHeaderBytes    = inbound.MaxHeaderBytes    // 32 KiB
)

// Server returns a server for a Proxy, or for a handler around one. It limits slow
// and greedy clients: a request's header may take ReadHeaderTimeout and have
// MaxHeaderBytes, a connection may be idle for two minutes, and a client may read
// nothing of its response for one minute, which over HTTP/2 is counted for each
// response. A write deadline that the handler sets, and the Server's WriteTimeout,
// apply if they are earlier. Of the body of each HTTP/2 request, at most 64 KiB are
// buffered that the handler has not read, whatever becomes of the other bodies of its
// connection.
//
// The server speaks HTTP/1 and HTTP/2, also in clear text. Pass the result of Listen
// to its Serve.
//
// Its ConnContext lets the proxy close an HTTP/2 connection whose client reads
// nothing while other requests wait for an Upstream's MaxConns or for memory. A
// ConnContext that replaces it should call it.
func Server(h http.Handler) *http.Server { return inbound.NewServer(h) }
