package proxy

import (
	"crypto/tls"
	"net"

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
