package inbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A secureListener does the TLS handshake before it accepts a connection, each in
// a goroutine of its own. For HTTP/2, net/http needs the *tls.Conn; for HTTP/1,
// it must get the scanned connection.
type secureListener struct {
	net.Listener
	config *tls.Config
	failed func(net.Addr, error)
	start  sync.Once
	ready  chan accepted
	closed chan struct{}
	close  sync.Once
}

type accepted struct {
	conn net.Conn
	err  error
}

const handshakeTime = 5 * time.Second

func newSecureListener(l net.Listener, config *tls.Config, failed func(net.Addr, error)) *secureListener {
	config = config.Clone()
	config.MinVersion = cmp.Or(config.MinVersion, tls.VersionTLS12)
	if config.NextProtos == nil {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return &secureListener{Listener: l, config: config, failed: failed, ready: make(chan accepted), closed: make(chan struct{})}
}

func (l *secureListener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.accept() })
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *secureListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *secureListener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			boundUnsent(c)
			go l.shake(c)
			continue
		}
		l.deliver(accepted{err: err})
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// deliver passes a connection or an error to Accept, and reports whether Accept got it.
func (l *secureListener) deliver(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.closed:
		return false
	}
}

func (l *secureListener) shake(c net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	secure := tls.Server(c, l.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil {
			_, _ = io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nThis port speaks HTTPS.\n") // for a client that can show it
		}
		l.failed(c.RemoteAddr(), err)
		c.Close()
		return
	}
	var ready net.Conn = secure
	if secure.ConnectionState().NegotiatedProtocol != "h2" {
		ready = &scannedSecure{scannedConn{Conn: secure, made: time.Now(), scan: Scanner{Secure: true}}, secure}
	}
	if !l.deliver(accepted{conn: ready}) {
		c.Close()
	}
}

// A scannedSecure is a scanned TLS connection. net/http asks it for the
// ConnectionState.
type scannedSecure struct {
	scannedConn
	secure *tls.Conn
}

func (c *scannedSecure) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }
