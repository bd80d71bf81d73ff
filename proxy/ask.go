package proxy

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

var errUnwritable = errors.New("the request has a byte that can't be sent on")

// An ask is a request as it is sent to the upstream: HTTP/1.1, with a length.
type ask struct {
	b   []byte
	bad bool // it has a byte that can't be sent
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
	q.b, q.bad = q.b[:0], false
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
	if a != nil {
		rec := a.Record()
		q.number(headerAttempt, int64(rec.Attempt))
		q.number(headerFence, rec.Fence)
	}
	q.forwarded(r, rt.TrustForwarded)
	if err := q.body(r); err != nil || !q.bad {
		return err
	}
	return errUnwritable
}

// target appends the request line.
func (q *ask) target(rt *route, r *http.Request) {
	from := len(q.b)
	q.b = append(append(append(append(q.b, r.Method...), ' '), rt.link.base...), escapedPath(r)...)
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

// body appends the length, the end of the head, and the body.
func (q *ask) body(r *http.Request) error {
	if r.ContentLength < 0 {
		body, err := io.ReadAll(r.Body)
		q.number("Content-Length", int64(len(body)))
		q.b = append(append(q.b, "\r\n"...), body...)
		return err
	}
	q.number("Content-Length", r.ContentLength)
	q.b = append(q.b, "\r\n"...)
	if r.ContentLength == 0 {
		return nil
	}
	n, from := int(r.ContentLength), len(q.b)
	q.b = slices.Grow(q.b, n)[:from+n]
	_, err := io.ReadFull(r.Body, q.b[from:])
	return err
}

// sends reports whether a client's header goes to the upstream as it is.
func (rt *route) sends(name string, h http.Header) bool {
	switch name {
	case "Content-Length", "Host", "Expect", "Proxy-Authorization", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
		return false
	}
	return !ofConnection(name) && !rt.replaced[name] && !listed(h["Connection"], name)
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
