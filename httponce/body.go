package httponce

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
)

// firstGrant bounds the memory given to a body for its Content-Length alone.
const firstGrant = 64 << 10

var errBodyTooLarge = errors.New("httponce: the request's body is too large")

// readBody appends the request's body, at most limit bytes, to buf.
func readBody(buf []byte, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return buf, errBodyTooLarge
	}
	if r.Body == nil || r.Body == http.NoBody {
		return buf, nil
	}
	limit += int64(len(buf))
	buf = slices.Grow(buf, int(min(max(r.ContentLength, 511), firstGrant))+1)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
		n, err := r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, errBodyTooLarge
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
	b.data = b.data[n:]
	return n, nil
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data, b.closed = nil, true
	return nil
}
