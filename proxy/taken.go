package proxy

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// A takenResponse is the answer to a request by HTTP/2. Each piece that is written has its
// time to be taken: a client that opens no window for it keeps the stream waiting,
// and not the connection, which has its own time.
type takenResponse struct {
	http.ResponseWriter
	conn net.Conn // nil: the Server has a ConnContext of its own

	mu       sync.Mutex
	writing  bool
	ended    time.Time // when what is being written was ended; zero: it was not
	deadline time.Time // the one that the handler has set; zero: none
}

// timeTaken returns h for clients that may take nothing of what it answers by HTTP/2.
// HTTP/1 has no such streams.
func timeTaken(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			h.ServeHTTP(w, r)
			return
		}
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		t := &takenResponse{ResponseWriter: w, conn: conn}
		defer t.begin() // net/http writes what is left
		h.ServeHTTP(t, r)
	})
}

// begin and end stand round what is written: a stream may also have nothing to say.
func (t *takenResponse) begin() { t.setWriting(true) }
func (t *takenResponse) end()   { t.setWriting(false) }

func (t *takenResponse) setWriting(writing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing, t.ended = writing, time.Time{}
	if t.deadline.IsZero() || t.deadline.After(time.Now()) { // else the stream has ended
		_ = t.allow()
	}
}

// allow gives what is written its time, but none beyond the handler's deadline. The
// caller has the lock.
func (t *takenResponse) allow() error {
	until := t.deadline
	if t.writing {
		until = earlier(time.Now().Add(writeTime*3/2), until)
	}
	return http.NewResponseController(t.ResponseWriter).SetWriteDeadline(until) // net/http's own takes one
}

// SetWriteDeadline is what http.ResponseController calls. With a time that has passed
// it ends the stream, which what is being written notices once the connection has
// taken the frame that says so. If it has not after a second, and the stream is
// ended again, that closes the connection.
func (t *takenResponse) SetWriteDeadline(until time.Time) error {
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

// isBlocked notes that what is being written is ended, and reports whether it was long
// before, and the connection can be closed. The caller has the lock.
func (t *takenResponse) isBlocked() bool {
	if !t.writing || t.conn == nil {
		return false
	}
	if t.ended.IsZero() {
		t.ended = time.Now()
	}
	return time.Since(t.ended) > slotWait
}

func (t *takenResponse) Write(p []byte) (int, error) {
	t.begin()
	defer t.end()
	return t.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls.
func (t *takenResponse) FlushError() error {
	t.begin()
	defer t.end()
	return http.NewResponseController(t.ResponseWriter).Flush()
}

func (t *takenResponse) Flush() { _ = t.FlushError() }

func (t *takenResponse) Unwrap() http.ResponseWriter { return t.ResponseWriter }
