// Package inbound is the side of the clients: it accepts connections that carry
// only requests that can be read in one way, and gives each piece of a response
// its time to be read.
package inbound

import (
	"crypto/tls"
	"net"
)

// Listen returns a listener of scanned connections, as proxy.Listen promises.
// failed is called with every TLS handshake that failed.
func Listen(l net.Listener, secure *tls.Config, failed func(net.Addr, error)) net.Listener {
	if secure == nil {
		return listener{l}
	}
	return newSecureListener(l, secure, failed)
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	boundUnsent(c)
	return newScannedConn(c), nil
}
