package h1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// A conn is a connection to an upstream that speaks HTTP/1.1, used by one
// goroutine at a time.
type conn struct {
	net.Conn
	raw      syscall.RawConn // the TCP connection
	below    *tlsRecords     // the TCP connection below TLS; nil: no TLS
	owner    string          // the tenant whose requests the conn carries; "": it is not reused
	in       []byte          // in[at:] has been received and not consumed
	at       int
	kept     time.Time // when the conn was put into the pool
	clock    deadline
	stall    time.Duration  // how long a response may pause
	writable time.Time      // the write deadline that is set for short requests; zero: none
	left     *time.Duration // how long the rest of the body may be waited for; nil: no limit
	complete bool           // the request was sent, and the response read, to the end
	watch    bool           // end a request as soon as its context does
	unwatch  func() bool    // stops watching the context of the request; nil: it is polled
	reused   bool           // the request was sent on a connection that had been idle
	heard    bool           // some of the response has been received
	head     responseHead

	response Response // the current one; part of the conn to save an allocation
}

// A deadline limits how long a conn waits for the server's response. The context is that
// of the request. Unless a conn watches it, a conn that waits checks it every pollInterval,
// so that a lost lease ends the wait, too.
type deadline struct {
	ctx   context.Context
	until time.Time // zero: none
}

const (
	minReadBuf = 4 << 10
	maxReadBuf = 32 << 10
	// pollInterval is how often a conn that waits checks its context.
	pollInterval = time.Second
	// unbuffered is the length above which writing a request may block.
	unbuffered = 16 << 10
	// largestKept is the largest buffer that is kept for the next request.
	largestKept = 64 << 10
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// begin prepares the conn for one request.
func (c *conn) begin(ctx context.Context) {
	c.clock = deadline{ctx: ctx}
	c.in, c.at, c.left = c.in[:0], 0, nil
	c.reused, c.heard = false, false
	if c.watch {
		c.unwatch = context.AfterFunc(ctx, func() { _ = c.SetDeadline(longAgo) }) // if it fails, so do Read and Write
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(pollInterval)) // if it fails, so does the next Read
}

// end stops watching the context of the request. It returns false if the context has
// ended, after which the conn can't be used for another request.
func (c *conn) end() bool { return c.unwatch == nil || c.unwatch() }

// Close closes the connection.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}

// allow sets the time limit of the following reads; 0 means none.
func (c *conn) allow(d time.Duration) {
	if c.clock.until = (time.Time{}); d > 0 {
		c.clock.until = time.Now().Add(d)
	}
	if c.watch || 0 < d && d < pollInterval {
		_ = c.setReadLimit(c.clock.until) // if it fails, so does the next Read
	}
}

// setReadLimit sets the time at which a Read ends. A Read also ends when the context does,
// if the conn watches it.
func (c *conn) setReadLimit(at time.Time) error {
	if err := c.SetReadDeadline(at); err != nil || !c.watch || c.clock.ctx.Err() == nil {
		return err
	}
	return c.SetReadDeadline(longAgo) // at may have replaced the deadline that the end of the context set
}

// fill appends received bytes to c.in, at least one.
func (c *conn) fill() error {
	if c.at == len(c.in) || len(c.in) == cap(c.in) {
		c.in, c.at = c.in[:copy(c.in, c.in[c.at:])], 0 // what has been consumed makes room
	}
	if len(c.in) == cap(c.in) {
		c.in = append(c.in, 0)[:len(c.in)] // grows
	}
	for {
		n, err := c.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		switch {
		case n > 0:
			c.heard = true
			return nil
		case err == nil:
			return io.ErrNoProgress
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		if err := c.clock.check(); err != nil {
			return err
		}
		next := c.clock.until
		if !c.watch {
			next = time.Now().Add(pollInterval)
		}
		if err := c.setReadLimit(next); err != nil {
			return err
		}
	}
}

// check returns an error if the wait must end.
func (d *deadline) check() error {
	switch {
	case d.ctx.Err() != nil:
		return context.Cause(d.ctx)
	case !d.until.IsZero() && !time.Now().Before(d.until):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// write sends all of p and reports whether any of it may have been sent.
func (c *conn) write(p []byte, limit time.Duration) (sent bool, err error) {
	n := 0
	_, secure := c.Conn.(*tls.Conn)
	if len(p) > unbuffered || secure { // TLS may write while it reads, so no deadline stays
		err = c.writing(func() (err error) {
			n, err = c.writePiece(p, limit)
			return err
		})
	} else {
		c.allowShort(limit)
		n, err = c.Write(p)
	}
	return n > 0 || secure, err
}

// writing calls write, whose calls of writePiece end when the context of the request does.
// After an error, the conn can't be used for another request.
func (c *conn) writing(write func() error) error {
	stop := context.AfterFunc(c.clock.ctx, func() { _ = c.SetWriteDeadline(longAgo) }) // if it fails, so does the Write
	err := write()
	if !stop() {
		return context.Cause(c.clock.ctx)
	}
	_ = c.SetWriteDeadline(time.Time{}) // if it fails, so does the next Write
	c.writable = time.Time{}
	return err
}

// allowShort gives the next Write the limit, if there is one, and at most twice as much. A
// short request blocks only if the server has read none of many before it, so most need no
// new deadline.
func (c *conn) allowShort(limit time.Duration) {
	if now := time.Now(); limit > 0 && c.writable.Sub(now) < limit {
		c.writable = now.Add(2 * limit)
		_ = c.SetWriteDeadline(c.writable) // if it fails, so does the Write
	}
}

// writePiece sends p within the limit, if there is one.
func (c *conn) writePiece(p []byte, limit time.Duration) (n int, err error) {
	if limit > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(limit)) // if it fails, so does the Write
	}
	if err := context.Cause(c.clock.ctx); err != nil {
		return 0, err // the limit has replaced the deadline that ends the Write
	}
	return c.Write(p)
}

// silent reports whether TLS holds no received bytes, not even a part of a record.
// Bytes that are still in the kernel are for alive to find.
func (c *conn) silent() bool {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	var one [1]byte
	_ = c.SetReadDeadline(longAgo) // read only buffered bytes
	n, err := secure.Read(one[:])
	_ = c.SetReadDeadline(time.Now().Add(pollInterval))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.below.have == 0 && c.below.left == 0
}
