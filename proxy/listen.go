package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Listen returns a listener whose connections carry only requests that can be
// read in one way, as RFC 9112 asks for: another is answered with 400, and its
// connection closed. With a TLS setting they are TLS connections, of TLS 1.2 or
// later unless it says otherwise; a client may choose HTTP/2, unless its
// NextProtos says otherwise. HTTP/2 in clear text passes too.
func Listen(l net.Listener, secure *tls.Config) *Listener {
	if secure == nil {
		return &Listener{Listener: listener{l}}
	}
	shaking := newSecureListener(l, secure)
	outer := &Listener{Listener: shaking}
	shaking.failed = func(client net.Addr, err error) {
		if outer.HandshakeFailed != nil {
			outer.HandshakeFailed(client, err)
		}
	}
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

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	boundUnsent(c)
	return &scannedConn{Conn: c}, nil
}

// scannedConn is a client's connection. When what it receives turns bad, net/http
// receives something else instead, which it refuses with 400 in the order of the
// requests; within a body, where nothing can be said any more, an error.
type scannedConn struct {
	net.Conn
	scan    requestScanner
	poison  string // what net/http is still to receive
	refused bool
	ended   error
	upgrade atomic.Bool // a request asked for another protocol
	raw     atomic.Bool // it has got it
	within  atomic.Bool // a request has begun and not come to its end
	closed  atomic.Bool
	// answered says that something was written since.
	answered atomic.Bool

	allowed  atomic.Int64 // when what is written was last given time, in nanoseconds; 0: it has none
	mu       sync.Mutex   // of the connection's deadline for writing
	deadline time.Time    // the one that was set; zero: none
}

// writeTime is how long, at least, a client may take no byte of its answer.
const writeTime = time.Minute

// poison makes a request malformed wherever it comes in its head, and is as long as
// what net/http waits for to know HTTP/2.
const poison = "\x00: \x00 this is not HTTP\r\n\r\n"

var errBadBody = errors.New("proxy: the request's body is malformed")

func (c *scannedConn) Read(p []byte) (int, error) {
	switch {
	case c.closed.Load():
		return 0, net.ErrClosed
	case c.raw.Load():
		return c.Conn.Read(p)
	case c.poison != "":
		n := copy(p, c.poison)
		c.poison = c.poison[n:]
		return n, nil
	case c.ended != nil:
		return 0, c.ended
	case c.refused:
		return 0, c.discard()
	}
	n, err := c.Conn.Read(p)
	good := c.scan.feed(p[:n])
	if within := good < n || len(c.scan.part) > 0 || c.scan.state != atStart && c.scan.state != opaque; within != c.within.Load() {
		c.within.Store(within)
		c.answered.Store(false)
	}
	if c.scan.upgrade {
		c.upgrade.Store(true)
		c.scan.upgrade = false
	}
	if good == n {
		return n, err
	}
	return c.refuse(p, good)
}

// refuse ends the connection after the first good bytes of p.
func (c *scannedConn) refuse(p []byte, good int) (int, error) {
	if s := c.scan.state; s == atStart || s == inHead || s == inPreface {
		n := copy(p[good:], poison)
		c.poison, c.refused = poison[n:], true
		return good + n, nil
	}
	if c.ended = errBadBody; good == 0 {
		return 0, c.ended
	}
	return good, nil
}

// discard waits for the end of what is refused: an earlier request may still be
// answered, and net/http takes an error for a client that has gone.
func (c *scannedConn) discard() error {
	var b [512]byte
	for {
		if _, err := c.Conn.Read(b[:]); err != nil {
			return err
		}
	}
}

var (
	interim   = []byte("HTTP/1.1 1")
	switching = []byte("HTTP/1.1 101 ")
)

// Write looks whether the first that is written to a request that asked for
// another protocol grants it.
func (c *scannedConn) Write(p []byte) (int, error) {
	if c.upgrade.Load() && !c.raw.Load() {
		switch {
		case bytes.HasPrefix(p, switching):
			c.raw.Store(true)
		case !bytes.HasPrefix(p, interim):
			c.upgrade.Store(false)
		}
	}
	if !c.answered.Load() {
		c.answered.Store(true)
	}
	if now := time.Now(); now.UnixNano()-c.allowed.Load() > int64(writeTime/2) {
		c.mu.Lock()
		_ = c.allow(now) // else the Write fails, too
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// allow gives what is written its time, but none beyond the deadline that was set. The
// caller has the lock.
func (c *scannedConn) allow(now time.Time) error {
	c.allowed.Store(now.UnixNano())
	return c.Conn.SetWriteDeadline(earlier(now.Add(writeTime*3/2), c.deadline))
}

// earlier returns the earlier one of two deadlines, of which the second may be none.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// SetWriteDeadline sets the time after which nothing is written any more. Until then
// each piece of an answer has its own time. The zero time, which net/http sets after
// each answer, ends that, too; the next Write gets time again.
func (c *scannedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = t; !t.IsZero() {
		return c.allow(time.Now())
	}
	c.allowed.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline is SetWriteDeadline for both ways.
func (c *scannedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite lets net/http say that it has answered, and wait for the client to
// have received that.
func (c *scannedConn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
