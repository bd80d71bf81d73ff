package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
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
	stall time.Duration // how long an answer may pause
	end   time.Time     // when its body has to have come; zero: at any time
	reply reply
	whole bool // the request has been sent to its end
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

// A pool has the idle connections to an upstream, the youngest last.
type pool struct {
	max  int
	keep time.Duration

	mu      sync.Mutex
	idle    []*conn
	reaper  *time.Timer // nil: not set
	retired bool
}

// take returns an idle connection of the owner that still stands, and on which
// nothing has come that nobody asked for; or nil.
func (p *pool) take(ctx context.Context, owner string) *conn {
	for {
		c := p.youngest(owner)
		if c == nil {
			return nil
		}
		if c.begin(ctx); time.Since(c.kept) < p.keep && c.alive() && c.silent() {
			return c
		}
		c.Close()
	}
}

// youngest removes the owner's youngest connection, or returns nil.
func (p *pool) youngest(owner string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.idle) - 1; i >= 0; i-- {
		if c := p.idle[i]; c.owner == owner {
			p.idle = slices.Delete(p.idle, i, i+1)
			return c
		}
	}
	return nil
}

// put keeps a connection whose answer was read to its end.
func (p *pool) put(c *conn) {
	c.clock.ctx = nil
	if cap(c.in) > mostIn {
		c.in = make([]byte, 0, firstIn)
	}
	c.kept = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		c.Close()
		return
	}
	if len(p.idle) >= p.max { // the oldest makes room, for it may be of a tenant that has gone
		p.idle[0].Close()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, c)
	if p.reaper == nil {
		p.reaper = time.AfterFunc(p.keep, p.reap)
	}
}

// reap closes what has been idle for too long.
func (p *pool) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := 0
	for old < len(p.idle) && time.Since(p.idle[old].kept) >= p.keep {
		p.idle[old].Close()
		old++
	}
	n := copy(p.idle, p.idle[old:])
	clear(p.idle[n:])
	if p.idle = p.idle[:n]; n == 0 {
		p.reaper = nil
		return
	}
	p.reaper.Reset(p.keep - time.Since(p.idle[0].kept))
}

// retire closes all connections once they are idle.
func (p *pool) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	for _, c := range p.idle {
		c.Close()
	}
	clear(p.idle)
	p.idle = p.idle[:0]
}

// dial makes a new connection.
func (l *link) dial(ctx context.Context) (*conn, error) {
	d := net.Dialer{Timeout: l.DialTimeout}
	to, err := d.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: to, in: make([]byte, 0, firstIn), stall: l.StallTimeout}
	if s, ok := to.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	if l.secure != nil {
		ctx, cancel := context.WithTimeout(ctx, l.TLSTimeout)
		defer cancel()
		c.below = &tlsRecords{Conn: to}
		secure := tls.Client(c.below, l.secure)
		if err := secure.HandshakeContext(ctx); err != nil {
			to.Close()
			return nil, err
		}
		c.Conn = secure
	}
	c.begin(ctx)
	return c, nil
}
