package h1

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// ErrUnwritable means that a request has a byte that can't be sent. Nothing was sent.
var ErrUnwritable = errors.New("the request has a byte that can't be passed on")

// A Request is an HTTP/1.1 request with a Content-Length or without a body, in the bytes
// that are sent. NewRequest writes the request line; then the fields are added, then the
// Body or NoBody.
type Request struct {
	b      []byte
	method string
	left   int64 // bytes of the body that are not in b
	bad    bool  // it has a byte that can't be sent

	// OnInterim is called with each interim response. The fields are valid until it
	// returns. If it is nil, interim responses are skipped.
	OnInterim func(status int, fields []Field)
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// NewRequest begins a request whose target is the concatenation of the parts. The
// caller must release it.
func NewRequest(method string, target ...string) *Request {
	q := requests.Get().(*Request)
	q.method, q.left, q.bad = method, 0, !httpfield.IsToken(method)
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

// Release returns the Request's memory to a pool. The Request must not be used again.
func (q *Request) Release() {
	if cap(q.b) > largestKept {
		q.b = nil
	}
	q.OnInterim = nil
	requests.Put(q)
}

// Field appends a field.
func (q *Request) Field(name, value string) {
	q.bad = q.bad || !httpfield.IsToken(name) || !httpfield.IsText(value)
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

// FieldFunc appends a field whose value is appended by appendTo.
func (q *Request) FieldFunc(name string, appendTo func([]byte) []byte) {
	q.b = append(append(q.b, name...), ": "...)
	from := len(q.b)
	q.b = appendTo(q.b)
	q.bad = q.bad || !httpfield.IsText(q.b[from:])
	q.b = append(q.b, "\r\n"...)
}

const (
	// FirstPiece is how much of a body is read before anything is sent, and written
	// together with the head.
	FirstPiece = 16 << 10
	piece      = 32 << 10 // written at a time after that
)

// Body ends the head with the length of the body, n, and reads the beginning of the
// body. Send reads the rest.
func (q *Request) Body(body io.Reader, n int64) error {
	q.Number("Content-Length", n)
	q.b = append(q.b, "\r\n"...)
	if q.left = n; n == 0 {
		return nil
	}
	part, from := int(min(n, FirstPiece)), len(q.b)
	q.b = slices.Grow(q.b, part)[:from+part]
	_, err := io.ReadFull(body, q.b[from:])
	q.left -= int64(part)
	return err
}

// NoBody ends the head of a request that has neither a body nor a Content-Length.
func (q *Request) NoBody() { q.b = append(q.b, "\r\n"...) }

// Bytes returns the bytes that Send sends first: the head, and the beginning of the
// body.
func (q *Request) Bytes() ([]byte, error) {
	if q.bad {
		return nil, ErrUnwritable
	}
	return q.b, nil
}

// rest sends the bytes of the body that Body did not read, on the connection on which
// the beginning was sent. limit is the time for each piece.
func (q *Request) rest(c *conn, body io.Reader, limit time.Duration) error {
	if q.left == 0 {
		return nil
	}
	q.b = slices.Grow(q.b[:0], piece)
	return c.writing(func() error {
		for q.left > 0 {
			part := q.b[:min(q.left, piece)]
			if _, err := io.ReadFull(body, part); err != nil {
				return err
			}
			q.left -= int64(len(part))
			if _, err := c.writePiece(part, limit); err != nil {
				return err
			}
		}
		return nil
	})
}
