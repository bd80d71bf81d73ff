package h1

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// ErrUnwritable says that a request has a byte that can't be sent. Nothing was sent.
var ErrUnwritable = errors.New("the request has a byte that can't be sent on")

// A Request is a request as it is sent: HTTP/1.1, with a length. Its request line is
// written first, then its fields, then its Body.
type Request struct {
	b      []byte
	method string
	left   int64 // of the body, that is not in b
	bad    bool  // it has a byte that can't be sent
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// NewRequest begins a request. The target is what the parts make together. It must
// be released.
func NewRequest(method string, target ...string) *Request {
	q := requests.Get().(*Request)
	q.method, q.left, q.bad = method, 0, !syntax.IsToken(method) || method == ""
	q.b = append(append(q.b[:0], method...), ' ')
	from := len(q.b)
	for _, part := range target {
		q.b = append(q.b, part...)
	}
	for _, c := range q.b[from:] {
		q.bad = q.bad || c <= ' ' || c == 0x7f
	}
	q.b = append(q.b, " HTTP/1.1\r\n"...)
	return q
}

// Release makes the Request's memory free for another.
func (q *Request) Release() {
	if cap(q.b) > largestKept {
		q.b = nil
	}
	requests.Put(q)
}

// Field appends a field.
func (q *Request) Field(name, value string) {
	q.bad = q.bad || !syntax.IsToken(name) || !syntax.IsText(value)
	q.b = append(append(append(append(q.b, name...), ": "...), value...), "\r\n"...)
}

// Fields appends a field for each value.
func (q *Request) Fields(name string, values []string) {
	for _, v := range values {
		q.Field(name, v)
	}
}

// Number appends a field whose value is a number.
func (q *Request) Number(name string, n int64) {
	q.b = append(append(q.b, name...), ": "...)
	q.b = append(strconv.AppendInt(q.b, n, 10), "\r\n"...)
}

// FieldFunc appends a field whose value is what appendTo appends.
func (q *Request) FieldFunc(name string, appendTo func([]byte) []byte) {
	q.b = append(append(q.b, name...), ": "...)
	from := len(q.b)
	q.b = appendTo(q.b)
	q.bad = q.bad || !syntax.IsText(q.b[from:])
	q.b = append(q.b, "\r\n"...)
}

// longestPart is how much of a body is written together with the head.
const longestPart = 16 << 10

// piece is how much of the rest is written at a time.
const piece = 32 << 10

// Body ends the head with the body's length, n, and reads the beginning of the body.
// Send reads the rest.
func (q *Request) Body(body io.Reader, n int64) error {
	q.Number("Content-Length", n)
	q.b = append(q.b, "\r\n"...)
	if q.left = n; n == 0 {
		return nil
	}
	part, from := int(min(n, longestPart)), len(q.b)
	q.b = slices.Grow(q.b, part)[:from+part]
	_, err := io.ReadFull(body, q.b[from:])
	q.left -= int64(part)
	return err
}

// Bytes returns what Send sends first: the head, and the beginning of the body.
func (q *Request) Bytes() ([]byte, error) {
	if q.bad {
		return nil, ErrUnwritable
	}
	return q.b, nil
}

// rest sends what Body has left, on the connection that has the beginning. Every
// piece has its time.
func (q *Request) rest(c *conn, body io.Reader, limit time.Duration) error {
	if q.left == 0 {
		return nil
	}
	defer c.SetWriteDeadline(time.Time{})
	q.b = slices.Grow(q.b[:0], piece)
	for q.left > 0 {
		part := q.b[:min(q.left, piece)]
		if _, err := io.ReadFull(body, part); err != nil {
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
