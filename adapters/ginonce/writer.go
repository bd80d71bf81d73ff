package ginonce

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// A responseWriter is a gin.ResponseWriter to the ResponseWriter of httponce. As with gin's own,
// a status can be replaced until the first byte of the body is written.
type responseWriter struct {
	http.ResponseWriter
	status int
	isSet  bool      // by a handler
	size   int       // of the body; none: not even the header is written
	failed chan bool // see CloseNotify
}

var _ gin.ResponseWriter = (*responseWriter)(nil)

const none = -1

func newResponseWriter(w http.ResponseWriter, status int) responseWriter {
	own := responseWriter{ResponseWriter: w, failed: make(chan bool, 1)}
	own.reset(status)
	return own
}

func (w *responseWriter) reset(status int) {
	w.status, w.isSet, w.size = status, false, none
	select {
	case <-w.failed: // a write of the part that was dropped
	default:
	}
}

func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *responseWriter) Status() int                 { return w.status }
func (w *responseWriter) Size() int                   { return w.size }
func (w *responseWriter) Written() bool               { return w.size != none }
func (w *responseWriter) Pusher() http.Pusher         { return nil }

func (w *responseWriter) WriteHeader(status int) {
	switch {
	case status <= 0:
	case w.Written():
		w.ResponseWriter.WriteHeader(status) // is ignored, but shows httponce that gin.Recovery writes it
	default:
		w.status, w.isSet = status, true
	}
}

func (w *responseWriter) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(p)
	return w.wrote(n, err)
}

func (w *responseWriter) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, s)
	return w.wrote(n, err)
}

// wrote notes the result of a write.
func (w *responseWriter) wrote(n int, err error) (int, error) {
	w.size += n
	if err != nil {
		select {
		case w.failed <- true:
		default: // it has been said
		}
	}
	return n, err
}

func (w *responseWriter) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // as gin's own, which returns no error
}

func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.size == none {
		w.size = 0
	}
	return conn, rw, err
}

// CloseNotify returns a channel that gets a value once a write has failed, for gin.Context.Stream,
// which does not see the errors of its writes. It gets none when the client has gone: the command
// continues, and so do the writes as long as the response can be recorded.
func (w *responseWriter) CloseNotify() <-chan bool { return w.failed }
