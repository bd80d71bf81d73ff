package response

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Writer is the http.ResponseWriter through which a handler writes a Response.
// It has the methods of net/http's own ResponseWriter, and no others that a framework
// could mistake for those of its own.
type Writer Response

// Writer returns the ResponseWriter of the handler.
func (r *Response) Writer() *Writer { return (*Writer)(r) }

func (w *Writer) response() *Response { return (*Response)(w) }

// Header returns the header of the response, or, once the handler has returned, one
// that is not sent: the header that is sent is the one that was recorded, and it is
// used by another goroutine.
func (w *Writer) Header() http.Header {
	if w.returned.Load() {
		return make(http.Header)
	}
	return w.To.Header()
}

func (w *Writer) WriteHeader(status int) {
	if !w.response().writeHeader(status) {
		w.Owner.WroteLate()
	}
}

func (w *Writer) Write(p []byte) (int, error)       { return write(w, p) }
func (w *Writer) WriteString(s string) (int, error) { return write(w, s) }

func write[P []byte | string](w *Writer, p P) (int, error) {
	n, err := keep(w.response(), p)
	if err == errReturned || err == errSaved && len(p) > 0 {
		w.Owner.WroteLate()
	}
	return n, err
}

// ReadFrom is called by io.Copy.
func (w *Writer) ReadFrom(src io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(onlyWriter{w}, src, buf[:])
}

type onlyWriter struct{ io.Writer }

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError is called by http.ResponseController. From now on, the response
// streams, unless it belongs to a transaction or the flush would send all of
// it. A complete response waits until the handler ends, so that it is recorded
// before it is sent.
func (w *Writer) FlushError() error {
	r := w.response()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.InTx && r.stage == Buffered {
		return http.ErrNotSupported
	}
	if err := r.admit(0); err != nil {
		return err
	}
	if !canFlush(r.To) {
		return http.ErrNotSupported
	}
	if r.isHeader() {
		return nil
	}
	if r.stage == Buffered {
		if err := r.stream(nil); err != nil {
			r.refused = true
			return err
		}
	}
	err := http.NewResponseController(r.To).Flush()
	if r.storable() {
		return nil
	}
	r.refused = r.refused || err != nil
	return err
}

func canFlush(w http.ResponseWriter) bool {
	return reaches(w, func(w http.ResponseWriter) bool {
		switch w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		}
		return false
	})
}

func canHijack(w http.ResponseWriter) bool {
	return reaches(w, func(w http.ResponseWriter) bool { _, ok := w.(http.Hijacker); return ok })
}

// reaches reports whether can is true of w, or of a ResponseWriter that w wraps.
func reaches(w http.ResponseWriter, can func(http.ResponseWriter) bool) bool {
	for !can(w) {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
	return true
}

// Hijack gives the connection to the handler. The response is then not stored.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r := w.response()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.InTx || !canHijack(r.To):
		return nil, nil, http.ErrNotSupported
	case r.stage == Committed:
		return nil, nil, errSealed
	case r.stage == Hijacked:
		return nil, nil, http.ErrHijacked
	case r.stage == closed:
		return nil, nil, errReturned
	}
	if r.status != 0 && r.stage == Buffered {
		_ = r.stream(nil) // the handler finds an error when it uses the connection
	}
	if r.last != nil {
		r.SendEnd() // nothing will be recorded, so there is nothing to wait for
		_ = http.NewResponseController(r.To).Flush()
	}
	conn, rw, err := http.NewResponseController(r.To).Hijack()
	if err == nil {
		r.stage = Hijacked
	}
	return conn, rw, err
}

func (w *Writer) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.To).SetReadDeadline(t)
}

func (w *Writer) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.To).SetWriteDeadline(t)
}

func (w *Writer) EnableFullDuplex() error {
	return http.NewResponseController(w.To).EnableFullDuplex()
}
