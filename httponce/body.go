package httponce

import (
	"io"
	"net/http"
	"sync"
)

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// announcesMore reports whether an HTTP/2 request with an empty body announces
// a longer one. net/http does not check that.
func announcesMore(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	return r.ProtoMajor > 1 && len(lengths) > 0 && (len(lengths) > 1 || lengths[0] != "0")
}

// bodyLength returns the announced length of a request's body, or -1.
func bodyLength(r *http.Request) int64 {
	if !hasBody(r) {
		return 0
	}
	return r.ContentLength
}

// receive appends the request's body to buf. What it holds has been admitted.
func (l *middleware) receive(c *call, buf []byte) ([]byte, error) {
	from, err := len(buf), error(nil)
	if hasBody(c.r) {
		buf, err = c.scratch.uses.Body.ReadAll(c.r.Context(), c.w, c.r.Body, buf, c.r.ContentLength, l.cfg.MaxBody)
	}
	if err == nil && len(buf) == from && announcesMore(c.r) {
		err = io.ErrUnexpectedEOF
	}
	return buf, err
}

// A body is the request's body for the handler. Its memory is used for other
// requests as soon as the handler has returned.
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
		b.data = nil // so that its memory can be given back
	}
	return n, nil
}

// rest returns the unread part, for rewind.
func (b *body) rest() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

// rewind makes rest the unread part again.
func (b *body) rewind(rest []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.data = rest
	}
}

// Len returns the number of unread bytes.
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
