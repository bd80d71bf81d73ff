package h1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// A Config says how a Client connects to its server, and how long it waits for it.
// DialTimeout, TLSTimeout and KeepIdle must be set.
type Config struct {
	Address string      // to dial, with a port
	TLS     *tls.Config // nil: no TLS

	DialTimeout   time.Duration
	TLSTimeout    time.Duration // for the handshake
	HeaderTimeout time.Duration // from the end of the request to the response's header; 0: none
	StallTimeout  time.Duration // for each piece of a request, or twice as long for a short one, and between bytes of a response's body; 0: none
	MaxIdle       int           // largest number of idle connections
	KeepIdle      time.Duration // how long an idle connection is kept

	// Watch ends a request as soon as its context ends. Without it, a request ends
	// within a second, and costs less.
	Watch bool
}

// A Client sends requests to one server. It is safe for concurrent use.
type Client struct {
	cfg  Config
	pool pool
}

// NewClient returns a Client. It does not connect.
func NewClient(cfg Config) *Client {
	return &Client{cfg: cfg, pool: pool{max: cfg.MaxIdle, keep: cfg.KeepIdle}}
}

// Retire closes the idle connections, and the others once they become idle.
func (c *Client) Retire() { c.pool.retire() }

// Send sends a request once and receives the header of its response. q.Body must have
// been called with the same body, or q.NoBody. If Send fails, sent reports whether the
// server may have received any of the request. Send uses an idle connection of the owner, or a
// new one. Without an owner, the connection is new and is not reused. When ctx ends,
// Send returns, at once or within a second (see Config.Watch).
func (c *Client) Send(ctx context.Context, q *Request, body io.Reader, owner string) (r *Response, sent bool, err error) {
	first, err := q.Bytes()
	if err != nil {
		return nil, false, err
	}
	on, sent, err := c.write(ctx, first, owner)
	if !sent {
		return nil, false, err
	}
	if err == nil {
		err = q.rest(on, body, c.cfg.StallTimeout)
	}
	if on.allow(c.cfg.HeaderTimeout); err != nil { // the server may have responded without reading the rest
		on.allow(pollInterval)
	}
	if failed := on.receive(q.method, q.OnInterim); failed != nil {
		on.Close()
		if on.reused && !on.heard && isClosed(failed) {
			failed = errors.Join(ErrIdleClosed, failed)
		}
		return nil, true, errors.Join(err, failed)
	}
	on.complete = err == nil
	on.response = Response{pool: &c.pool, conn: on}
	return &on.response, true, nil
}

// ErrIdleClosed means that the server closed a connection that had been idle, without any
// of a response. It probably closed the connection just as the request was sent, but it
// may have received the request.
var ErrIdleClosed = errors.New("the server closed an idle connection on which the request was sent")

// isClosed reports whether the error of receiving a response is that the server closed the
// connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// write sends p on an idle connection of the owner or, if nothing could be sent on
// that one, on a new connection. If it fails, sent reports whether any of p may have
// been sent.
func (c *Client) write(ctx context.Context, p []byte, owner string) (on *conn, sent bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, false, err
	}
	if owner != "" {
		on = c.pool.get(ctx, owner)
	}
	if on != nil {
		if sent, err = on.write(p, c.cfg.StallTimeout); sent {
			on.reused = true
			return on, true, err
		}
		on.Close()
	}
	if on, err = c.dial(ctx); err != nil {
		return nil, false, err
	}
	on.owner = owner
	if sent, err = on.write(p, c.cfg.StallTimeout); !sent {
		on.Close()
	}
	return on, sent, err
}

// dial opens a connection.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	d := net.Dialer{Timeout: c.cfg.DialTimeout}
	to, err := d.DialContext(ctx, "tcp", c.cfg.Address)
	if err != nil {
		return nil, err
	}
	made := &conn{Conn: to, in: make([]byte, 0, minReadBuf), stall: c.cfg.StallTimeout, watch: c.cfg.Watch}
	if s, ok := to.(syscall.Conn); ok {
		made.raw, _ = s.SyscallConn()
	}
	if c.cfg.TLS != nil {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.TLSTimeout)
		defer cancel()
		made.below = &tlsRecords{Conn: to}
		secure := tls.Client(made.below, c.cfg.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			to.Close()
			return nil, err
		}
		made.Conn = secure
	}
	made.begin(ctx)
	return made, nil
}
