package proxy

import (
	"net/http"
	"time"
)

// A taken is the answer to a request by HTTP/2. Each piece that is written has its
// time to be taken: a client that opens no window for it keeps the stream waiting,
// and not the connection, which has its own time.
type taken struct{ http.ResponseWriter }

// timeTaken returns h for clients that may take nothing of what it answers by HTTP/2.
// HTTP/1 has no such streams.
func timeTaken(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			h.ServeHTTP(w, r)
			return
		}
		t := taken{w}
		defer t.begin() // net/http writes what is left
		h.ServeHTTP(t, r)
	})
}

// begin and end stand round what is written: a stream may also have nothing to say.
func (t taken) begin() { t.allow(time.Now().Add(writeTime * 3 / 2)) }

func (t taken) end() { t.allow(time.Time{}) }

func (t taken) allow(until time.Time) {
	_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(until) // net/http's own takes one
}

func (t taken) Write(p []byte) (int, error) {
	t.begin()
	defer t.end()
	return t.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls.
func (t taken) FlushError() error {
	t.begin()
	defer t.end()
	return http.NewResponseController(t.ResponseWriter).Flush()
}

func (t taken) Flush() { _ = t.FlushError() }

func (t taken) Unwrap() http.ResponseWriter { return t.ResponseWriter }
