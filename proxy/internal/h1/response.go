package h1

import (
	"bytes"
	"net/http"
	"time"
)

// A Response is a response whose head has been received. The caller must release or
// close it.
type Response struct {
	pool *pool
	conn *conn
}

// Status returns the status code.
func (r *Response) Status() int { return r.conn.head.status }

// Header returns the fields before the body.
func (r *Response) Header() []Field {
	if h := &r.conn.head; h.trailer > 0 {
		return h.fields[:h.trailer]
	}
	return r.conn.head.fields
}

// Trailer returns the fields after the body, once it has been read.
func (r *Response) Trailer() []Field {
	if h := &r.conn.head; h.trailer > 0 {
		return h.fields[h.trailer:]
	}
	return nil
}

// Length returns the length of the body, or -1 if it is not known before its end.
func (r *Response) Length() int64 {
	if h := &r.conn.head; !h.chunked {
		return h.length
	}
	return -1
}

// SetTimeLimit sets how long Body may wait for the server in all. The time that take
// needs does not count. Without this limit, only each piece has one.
func (r *Response) SetTimeLimit(d time.Duration) { r.conn.left = &d }

// Body passes the body to take, piece by piece. A piece is valid until take returns.
// If take returns false, Body stops and returns nil.
func (r *Response) Body(consume func([]byte) bool) error { return r.conn.body(consume) }

// Release keeps the connection for its owner's next request if nothing is left of
// this response, and closes it otherwise.
func (r *Response) Release() {
	c := r.conn
	if c.owner != "" && c.complete && !c.head.close && c.at == len(c.in) && c.end() {
		r.pool.put(c)
	} else {
		c.Close()
	}
}

// Close closes the connection.
func (r *Response) Close() { r.conn.Close() }

// nextHead receives and consumes the next head. It returns the head without the empty
// line that ends it.
func (c *conn) nextHead() (string, error) {
	scanned := c.at
	for {
		i, err := endOfHead(c.in[scanned:])
		if err != nil {
			return "", err
		}
		if i >= 0 {
			end := scanned + i
			if end-c.at > MaxHead {
				return "", errHeadTooLong
			}
			s := string(c.in[c.at:end])
			c.at = end + len("\r\n")
			return s, nil
		}
		if len(c.in)-c.at > MaxHead {
			return "", errHeadTooLong
		}
		scanned = max(c.at, len(c.in)-len("\r\n\r\n"))
		was := c.at
		if err := c.fill(); err != nil {
			return "", err
		}
		scanned -= was - c.at // fill may move the bytes to the beginning of the buffer
	}
}

// endOfHead returns the index of the empty line that ends the head, or -1. The first
// byte of b belongs to a line that is not empty.
func endOfHead(b []byte) (int, error) {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return -1, nil
		}
		i += from
		if i > 0 && b[i-1] != '\r' {
			return 0, Malformed("a line that ends with LF alone")
		}
		if i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n' {
			return i + 1, nil
		}
		from = i + 1
	}
}

// receive receives the head of the response to a request with the method. It passes
// interim responses to onInterim, if there is one.
func (c *conn) receive(method string, onInterim func(status int, fields []Field)) error {
	for range MaxInterim + 1 {
		head, err := c.nextHead()
		if err != nil {
			return err
		}
		if err := c.head.parse(head, method); err != nil {
			return err
		}
		switch {
		case c.head.status == http.StatusSwitchingProtocols:
			return Malformed("it switches protocols without being asked")
		case c.head.status >= 200:
			return nil
		case onInterim != nil:
			onInterim(c.head.status, c.head.fields)
		}
	}
	return ErrInterim
}
