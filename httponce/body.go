package httponce

import (
	"io"
	"net/http"
	"sync"
)

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
