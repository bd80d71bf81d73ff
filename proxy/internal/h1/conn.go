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
	raw   syscall.RawConn // of what is below TLS
	below *tlsRecords     // the same, followed; nil: no TLS
	owner string          // the tenant whose requests it carries; "": it is not used again
	in    []byte          // in[at:] has been received and not used
	at    int
	kept  time.Time // when it was put into the pool
	clock deadline
	stall time.Duration // how long a response may pause
	end   time.Time     // when its body has to have come; zero: at any time
	whole bool          // the request has been sent to its end, and the response read to its
	head  responseHead

	response Response // the one that its user has
}

// A deadline bounds what a conn waits for: in slices, so that a lost lease ends
// the wait, too.
type deadline struct {
	ctx   context.Context
	until time.Time // zero: none
}

const (
	firstIn = 4 << 10
	mostIn  = 32 << 10
	// slice is how often a conn that waits looks whether its attempt still
	// holds the command.
	slice = time.Second
	// unbuffered is the length from which writing a request may have to wait.
	unbuffered = 16 << 10
	// largestKept is the longest buffer that is kept for the next request.
	largestKept = 64 << 10
)

// begin readies the conn for one request.
func (c *conn) begin(ctx context.Context) {
	c.clock = deadline{ctx: ctx}
	c.in, c.at, c.end = c.in[:0], 0, time.Time{}
	_ = c.SetReadDeadline(time.Now().Add(slice)) // a conn that is closed says so when it is read
}

// allow says how long what is read next may take; 0: any time.
func (c *conn) allow(d time.Duration) {
	if c.clock.until = (time.Time{}); d > 0 {
		c.clock.until = time.Now().Add(d)
	}
	if 0 < d && d < slice {
		_ = c.SetReadDeadline(c.clock.until) // as in begin
	}
}

// fill receives more into c.in.
func (c *conn) fill() error {
	if c.at == len(c.in) {
		c.in, c.at = c.in[:0], 0
	}
	if len(c.in) == cap(c.in) {
		c.in = append(c.in, 0)[:len(c.in)] // grows
	}
	for {
		n, err := c.Read(c.in[len(c.in):cap(c.in)])
		c.in = c.in[:len(c.in)+n]
		switch {
		case n > 0:
			return nil
		case err == nil:
			return io.ErrNoProgress
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		if err := c.clock.wait(); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(slice)); err != nil {
			return err
		}
	}
}

// wait reports why no more time is to be spent.
func (d *deadline) wait() error {
	switch {
	case d.ctx.Err() != nil:
		return context.Cause(d.ctx)
	case !d.until.IsZero() && !time.Now().Before(d.until):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// write sends all of p, and reports whether any of it may have been sent.
func (c *conn) write(p []byte, limit time.Duration) (sent bool, err error) {
	if len(p) > unbuffered {
		_ = c.SetWriteDeadline(time.Now().Add(limit))
		defer c.SetWriteDeadline(time.Time{})
	}
	n, err := c.Write(p)
	_, secure := c.Conn.(*tls.Conn)
	return n > 0 || secure, err
}

// silent reports whether nothing is left of what TLS has received, not even a part
// of a record. alive looks for what has not been received yet.
func (c *conn) silent() bool {
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	var one [1]byte
	_ = c.SetReadDeadline(time.Unix(1, 0)) // only what is there
	n, err := secure.Read(one[:])
	_ = c.SetReadDeadline(time.Now().Add(slice))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.below.have == 0 && c.below.left == 0
}
