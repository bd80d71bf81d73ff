package inbound

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// endWait is how long a stream that was ended may stay blocked before its
// connection can be closed.
const endWait = time.Second

// A streamResponse is the response to an HTTP/2 request. Each piece that is
// written has its time to be read. A client that opens no window for it blocks the
// stream, but not the connection, which has a time of its own.
type streamResponse struct {
	http.ResponseWriter
	conn net.Conn // nil: the Server has a ConnContext of its own

	mu       sync.Mutex
	writing  bool
	ended    time.Time // when the writing was ended; zero: it was not
	deadline time.Time // the one that the handler has set; zero: none
}

// timeStreams returns h with time limits for its writes by HTTP/2. By HTTP/1,
// the connection has them.
func timeStreams(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			h.ServeHTTP(w, r)
			return
		}
		conn := ConnOf(r.Context())
		t := &streamResponse{ResponseWriter: w, conn: conn}
		defer t.begin() // net/http writes the rest
		h.ServeHTTP(t, r)
	})
}

// begin and end enclose a write. Between two writes, a stream has no time
// limit.
func (t *streamResponse) begin() { t.setWriting(true) }
func (t *streamResponse) end()   { t.setWriting(false) }

func (t *streamResponse) setWriting(writing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing, t.ended = writing, time.Time{}
	if t.deadline.IsZero() || t.deadline.After(time.Now()) { // otherwise the stream has ended
		_ = t.allow()
	}
}

// allow gives writing its time, but none beyond the handler's deadline. The
// caller holds the lock.
func (t *streamResponse) allow() error {
	until := t.deadline
	if t.writing {
		until = earlier(time.Now().Add(WriteTime*3/2), until)
	}
	return http.NewResponseController(t.ResponseWriter).SetWriteDeadline(until) // net/http's own takes one
}

// SetWriteDeadline is called by http.ResponseController. A time that has passed
// ends the stream. The writer notices that once the connection has sent the frame
// that says so. If it has not after a second, and the stream is ended again, the
// connection is closed.
func (t *streamResponse) SetWriteDeadline(until time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !until.IsZero() && !until.After(time.Now()) && t.isBlocked() {
		go t.conn.Close() // by TLS it may take a while
		return nil
	}
	if t.deadline = until; until.IsZero() {
		return http.NewResponseController(t.ResponseWriter).SetWriteDeadline(until)
	}
	return t.allow()
}

// isBlocked notes that the writing is ended. It reports whether it was ended long
// before, and whether the connection can be closed. The caller holds the lock.
func (t *streamResponse) isBlocked() bool {
	if !t.writing || t.conn == nil {
		return false
	}
	if t.ended.IsZero() {
		t.ended = time.Now()
	}
	return time.Since(t.ended) > endWait
}

func (t *streamResponse) Write(p []byte) (int, error) {
	t.begin()
	defer t.end()
	return t.ResponseWriter.Write(p)
}

// FlushError is called by http.ResponseController.
func (t *streamResponse) FlushError() error {
	t.begin()
	defer t.end()
	return http.NewResponseController(t.ResponseWriter).Flush()
}

func (t *streamResponse) Flush() { _ = t.FlushError() }

func (t *streamResponse) Unwrap() http.ResponseWriter { return t.ResponseWriter }
