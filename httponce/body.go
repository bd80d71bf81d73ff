package httponce

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// firstGrant is how much memory is taken for a body before any of it has come.
const firstGrant = 8 << 10

var errBodyTooLarge = errors.New("httponce: the request's body is too large")

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// announcesMore reports whether a request by HTTP/2 whose body is empty announces
// another, which net/http does not look at.
func announcesMore(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	return r.ProtoMajor > 1 && len(lengths) > 0 && (len(lengths) > 1 || lengths[0] != "0")
}

// firstGrantOf returns how much memory is taken for a request's body before it is
// read, and the length as which it is judged: the announced one, if there is one.
func firstGrantOf(r *http.Request) (n, class int64) {
	switch {
	case !hasBody(r):
		return 0, 0
	case r.ContentLength >= 0:
		return min(r.ContentLength, firstGrant), r.ContentLength
	}
	return firstGrant, firstGrant
}

// nextGrant returns how much memory a body has when it has filled so much. Few
// steps leave little garbage, and a body that has its megabyte comes to its end.
func nextGrant(room int64) int64 {
	switch {
	case room < smallFlow:
		return smallFlow
	case room < 1<<20:
		return 1 << 20
	}
	return 2 * room
}

// receive appends the request's body to buf, for which the first grant has been
// taken. The memory grows with what has come, and each time it is asked for before:
// what is only announced takes none.
func (l *middleware) receive(c *call, buf []byte) ([]byte, error) {
	r, limit := c.r, l.cfg.MaxBody
	if r.ContentLength > limit {
		return buf, errBodyTooLarge
	}
	if !hasBody(r) {
		if announcesMore(r) {
			return buf, io.ErrUnexpectedEOF
		}
		return buf, nil
	}
	in := &c.scratch.incoming
	in.restart()
	room, class := firstGrantOf(r)
	from, whole := len(buf), limit
	if r.ContentLength >= 0 {
		whole = r.ContentLength
	}
	for {
		have := int64(len(buf) - from)
		if have > whole {
			whole = limit // a handler round this one made it longer than announced
		}
		if have >= room && room < whole {
			grown := min(nextGrant(room), whole)
			if p := in.wait(r.Context(), memoryWait, grown-room, max(class, grown)); p != nil {
				return buf, &errNoRoom{*p}
			}
			room = grown
		}
		end := from + int(room)
		if room == whole {
			end++ // for what must not follow
		}
		if cap(buf) < end {
			buf = append(make([]byte, 0, end), buf...)
		}
		n, err := in.read(c.w, r.Body, buf[len(buf):end])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)-from) > limit:
			return buf, errBodyTooLarge
		case err == io.EOF && have+int64(n) == 0 && announcesMore(r):
			return buf, io.ErrUnexpectedEOF
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// A body is the request's body for the handler, out of memory that belongs to
// someone else as soon as the handler has returned.
type body struct {
	mu     sync.Mutex
	data   []byte
	closed bool
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil // whoever counts its memory may give it up
	}
	return n, nil
}

// rest returns what is left, for rewind.
func (b *body) rest() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

// rewind makes what was left the rest again.
func (b *body) rewind(rest []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.data = rest
	}
}

// Len returns how many bytes are left.
func (b *body) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.data)
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.closed = nil, true
	return nil
}
