package inbound

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A scannedConn is a client's connection. When it receives a request that can be read
// in two ways, it gives net/http a malformed request instead, which net/http rejects
// with 400 after it has responded to the requests before. Within a body, where a
// response is no longer possible, net/http gets an error.
type scannedConn struct {
	net.Conn
	scan     Scanner
	unsent   string // the rest of malformedRequest, which net/http has yet to receive
	rejected bool
	ended    error
	upgrade  atomic.Bool // a request asked for another protocol
	raw      atomic.Bool // and got it
	within   atomic.Bool // a request has begun and is not complete
	closed   atomic.Bool
	// responded reports whether something has been written since within changed.
	responded atomic.Bool

	made     time.Time    // the origin of allowAt, so that times are compared by the monotonic clock
	allowAt  atomic.Int64 // when the write deadline is to be set next, in nanoseconds since made
	mu       sync.Mutex   // guards the connection's write deadline
	deadline time.Time    // the one that was set; zero: none
}

func newScannedConn(c net.Conn) *scannedConn { return &scannedConn{Conn: c, made: time.Now()} }

// NetConn returns the connection below.
func (c *scannedConn) NetConn() net.Conn { return c.Conn }

// WriteTime is how long a client may at least read no byte of its response.
const WriteTime = time.Minute

// malformedRequest makes net/http reject a request, wherever in the head of the request
// it occurs. It is as long as the preface by which net/http detects HTTP/2.
const malformedRequest = "\x00: \x00 this is not HTTP\r\n\r\n"

var errBadBody = errors.New("proxy: the request's body is malformed")

func (c *scannedConn) Read(p []byte) (int, error) {
	switch {
	case c.closed.Load():
		return 0, net.ErrClosed
	case c.raw.Load():
		return c.Conn.Read(p)
	case c.unsent != "":
		n := copy(p, c.unsent)
		c.unsent = c.unsent[n:]
		return n, nil
	case c.ended != nil:
		return 0, c.ended
	case c.rejected:
		return 0, c.discard()
	}
	n, err := c.Conn.Read(p)
	good := c.scan.Feed(p[:n])
	if within := good < n || !c.scan.IsBetween() && !c.scan.IsOpaque(); within != c.within.Load() {
		c.within.Store(within)
		c.responded.Store(false)
	}
	if c.scan.upgrade {
		c.upgrade.Store(true)
		c.scan.upgrade = false
	}
	if good == n {
		return n, err
	}
	return c.reject(p, good)
}

// reject ends the connection after the first good bytes of p.
func (c *scannedConn) reject(p []byte, good int) (int, error) {
	if s := c.scan.state; s == atStart || s == inHead || s == inPreface {
		n := copy(p[good:], malformedRequest)
		c.unsent, c.rejected = malformedRequest[n:], true
		return good + n, nil
	}
	if c.ended = errBadBody; good == 0 {
		return 0, c.ended
	}
	return good, nil
}

// discard waits for the end of a rejected request. An earlier request may still be
// running, and net/http takes an error for a client that has gone.
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

// Write checks whether the response to a request for another protocol grants it.
func (c *scannedConn) Write(p []byte) (int, error) {
	if c.upgrade.Load() && !c.raw.Load() {
		switch {
		case bytes.HasPrefix(p, switching):
			c.raw.Store(true)
		case !bytes.HasPrefix(p, interim):
			c.upgrade.Store(false)
		}
	}
	if !c.responded.Load() {
		c.responded.Store(true)
	}
	if now := time.Now(); int64(now.Sub(c.made)) >= c.allowAt.Load() {
		c.mu.Lock()
		_ = c.allow(now) // if it fails, so does the Write
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

// allow gives writing its time, but none beyond the deadline that was set. The
// caller holds the lock.
func (c *scannedConn) allow(now time.Time) error {
	c.allowAt.Store(int64(now.Sub(c.made) + WriteTime/2))
	return c.Conn.SetWriteDeadline(earlier(now.Add(WriteTime*3/2), c.deadline))
}

// earlier returns the earlier of two deadlines. The second may be zero, for none.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// SetWriteDeadline sets the time after which writes fail. Until then, each piece of
// a response has its own time limit. The zero time, which net/http sets after each
// response, ends that limit, too. The next Write starts a new one.
func (c *scannedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = t; !t.IsZero() {
		return c.allow(time.Now())
	}
	c.allowAt.Store(0)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets the deadlines of both directions.
func (c *scannedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite lets net/http end its response and wait until the client has
// received it.
func (c *scannedConn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

type connKey struct{}

// withConn is a ConnContext of http.Server.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnOf returns the connection of a request with this context; nil: the server
// has a ConnContext of its own.
func ConnOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}
