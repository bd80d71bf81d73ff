package proxy

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

var errUnwritable = errors.New("the request has a byte that can't be sent on")

// An ask is a request as it is sent to the upstream: HTTP/1.1, with a length.
type ask struct {
	b    []byte
	left int64 // of the body, that is not in b
	bad  bool  // it has a byte that can't be sent
}

var asks = sync.Pool{New: func() any { return new(ask) }}

func (q *ask) giveBack() {
	if cap(q.b) > largestKept {
		q.b = nil
	}
	asks.Put(q)
}

// write writes the request, whose body has been received.
func (q *ask) write(rt *route, r *http.Request, a *onlyonce.Attempt) error {
	q.b, q.left, q.bad = q.b[:0], 0, false
	q.target(rt, r)
	if rt.link.KeepHost {
		q.field("Host", r.Host)
	} else {
		q.field("Host", rt.link.URL.Host)
	}
	for name, vs := range r.Header {
		if rt.sends(name, r.Header) {
			q.fields(name, vs)
		}
	}
	for name, vs := range rt.SetHeader {
		q.fields(name, vs)
	}
	if rt.link.OneRequestPerConn {
		q.field("Connection", "close")
	}
	if a != nil {
		rec := a.Record()
		q.number(headerAttempt, int64(rec.Attempt))
		q.number(headerFence, rec.Fence)
	}
	q.forwarded(r)
	if err := q.body(r); err != nil || !q.bad {
		return err
	}
	return errUnwritable
}

// target appends the request line.
func (q *ask) target(rt *route, r *http.Request) {
	from := len(q.b)
	q.b = append(append(append(append(q.b, r.Method...), ' '), rt.link.base...), r.URL.EscapedPath()...)
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		q.b = append(append(q.b, '?'), r.URL.RawQuery...)
	}
	for _, c := range q.b[from+len(r.Method)+1:] {
		q.bad = q.bad || c <= ' ' || c == 0x7f
	}
	q.b = append(q.b, " HTTP/1.1\r\n"...)
}

func (q *ask) field(name, value string) {
	for i := range len(name) {
		q.bad = q.bad || !isTokenByte[name[i]]
	}
	q.bad = q.bad || !isText(value)
	q.b = append(append(append(append(q.b, name...), ": "...), value...), "\r\n"...)
}

func (q *ask) fields(name string, values []string) {
	for _, v := range values {
		q.field(name, v)
	}
}

func (q *ask) number(name string, n int64) {
	q.b = append(append(q.b, name...), ": "...)
	q.b = append(strconv.AppendInt(q.b, n, 10), "\r\n"...)
}

// longestPart is how much of a request's body is written together with its head.
const longestPart = 16 << 10

// piece is how much of the rest is written at a time.
const piece = 32 << 10

// body appends the length, the end of the head, and the beginning of the body.
func (q *ask) body(r *http.Request) error {
	n := r.ContentLength
	if received, ok := r.Body.(inMemory); ok {
		n = int64(received.Len())
	}
	if n < 0 {
		return errUnreceived
	}
	q.number("Content-Length", n)
	q.b = append(q.b, "\r\n"...)
	if q.left = n; n == 0 {
		return nil
	}
	part, from := int(min(n, longestPart)), len(q.b)
	q.b = slices.Grow(q.b, part)[:from+part]
	_, err := io.ReadFull(r.Body, q.b[from:])
	q.left -= int64(part)
	return err
}

// rest sends what body has left, on the connection that has the beginning. Every
// piece has its time.
func (q *ask) rest(c *conn, r *http.Request, limit time.Duration) error {
	if q.left == 0 {
		return nil
	}
	defer c.SetWriteDeadline(time.Time{})
	q.b = slices.Grow(q.b[:0], piece)
	for q.left > 0 {
		part := q.b[:min(q.left, piece)]
		if _, err := io.ReadFull(r.Body, part); err != nil {
			return err
		}
		q.left -= int64(len(part))
		_ = c.SetWriteDeadline(time.Now().Add(limit))
		if _, err := c.Write(part); err != nil {
			return err
		}
	}
	return nil
}

var errUnreceived = errors.New("the request's body has not been received")

// sends reports whether a client's header goes to the upstream as it is.
func (rt *route) sends(name string, h http.Header) bool {
	switch name {
	case "Content-Length", "Host", "Expect", "Proxy-Authorization", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return false
	}
	return !ofConnection(name) && !rt.replaces(name) && !listed(h["Connection"], name)
}

// replaces reports whether a client's header is not sent on, in whatever spelling.
func (rt *route) replaces(name string) bool {
	return len(rt.replaced) > 0 && rt.replaced[spelled(name)]
}

// ofConnection reports whether a header ends here: RFC 9110, section 7.6.1.
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// listed reports whether comma-separated lists have the name.
func listed(lists []string, name string) bool {
	return slices.ContainsFunc(lists, func(list string) bool { return hasToken(list, name) })
}
