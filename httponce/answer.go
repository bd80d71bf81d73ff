package httponce

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// An answer is the ResponseWriter of a keyed request: it keeps what the handler
// writes until that is recorded, or passes it on and keeps a copy if it has to
// stream. Every request has a new one, which does nothing after its handler
// has returned.
type answer struct {
	w   http.ResponseWriter
	cfg *Config

	mu       sync.Mutex
	scratch  *scratch // nil once it is closed
	stage    stage
	inTx     bool // rows are not committed yet: nothing may leave
	status   int  // 0: not written yet
	declared int64
	size     int64 // of the body as written
	body     []byte
	last     []byte // of a streamed body of a declared length: its last byte, held back
	trailers http.Header
	tooLarge bool  // for a transaction
	refused  error // why InTx could not commit
}

// A stage says where the bytes of an answer go.
type stage int

const (
	buffered stage = iota
	streamed
	fixed    // it is recorded
	hijacked // the connection is the handler's
	closed   // the handler has returned
)

var (
	errFixed    = errors.New("httponce: the answer was committed by InTx and can't be changed")
	errReturned = errors.New("httponce: the handler has returned")
	errTooLarge = errors.New("httponce: the answer is too large for a transaction")
)

// txFactor is how many times Config.MaxAnswer an answer may have that can't
// stream, for its rows are not committed.
const txFactor = 16

func (a *answer) Header() http.Header { return a.w.Header() }

func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage >= fixed || a.status != 0 {
		return
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		a.w.WriteHeader(status)
		return
	}
	a.begin(status)
}

func (a *answer) begin(status int) {
	a.status, a.declared = status, -1
	h := a.w.Header()
	a.scratch.sent.take(h)
	if v := h["Content-Length"]; len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			a.declared = n
		}
	}
}

func (a *answer) Write(p []byte) (int, error)       { return write(a, p) }
func (a *answer) WriteString(s string) (int, error) { return write(a, s) }

func write[P []byte | string](a *answer, p P) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	a.size += int64(len(p))
	if a.inTx && a.size > txFactor*int64(a.cfg.MaxAnswer) {
		a.tooLarge, a.body = true, nil
		return 0, errTooLarge
	}
	if a.stage == streamed && !a.storable() {
		a.body = nil
		return pass(a, p)
	}
	if a.body == nil {
		a.body = make([]byte, 0, max(len(p), 512))
	}
	a.body = append(a.body, p...)
	switch {
	case a.stage == streamed:
		_, _ = pass(a, p) // the command goes on without its client
	case !a.storable() && !a.inTx:
		return len(p), a.stream()
	}
	return len(p), nil
}

// pass lets p leave as it comes, but for the last byte of a body of a declared
// length: a client that has all of it may ask again at once, so it is recorded
// before. Without a length, net/http's own end of the body tells the client.
func pass[P []byte | string](a *answer, p P) (int, error) {
	if a.size != a.declared {
		return send(a.w, p)
	}
	end := len(p) - 1
	a.last = []byte{p[end]}
	if n, err := send(a.w, p[:end]); err != nil {
		return n, err
	}
	return len(p), nil
}

func send[P []byte | string](w io.Writer, p P) (int, error) {
	switch p := any(p).(type) {
	case string:
		return io.WriteString(w, p)
	case []byte:
		return w.Write(p)
	}
	return 0, nil
}

// storable reports whether the body as written so far is short enough to be
// stored.
func (a *answer) storable() bool { return a.size <= int64(a.cfg.MaxAnswer) }

// admit reports whether n more bytes may be written.
func (a *answer) admit(n int) error {
	switch a.stage {
	case fixed:
		return errFixed
	case hijacked:
		return http.ErrHijacked
	case closed:
		return errReturned
	}
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(a.status):
		return http.ErrBodyNotAllowed
	case a.declared >= 0 && a.size+int64(n) > a.declared:
		return http.ErrContentLength
	}
	return nil
}

// ReadFrom is what io.Copy calls.
func (a *answer) ReadFrom(src io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(onlyWriter{a}, src, buf[:])
}

type onlyWriter struct{ io.Writer }

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// stream lets the answer leave as it comes.
func (a *answer) stream() error {
	a.complete()
	h := a.w.Header()
	a.scratch.sent.take(h)
	a.stage = streamed
	a.w.WriteHeader(a.status)
	maps.Copy(h, a.trailers)
	body := a.body
	if !a.storable() {
		a.body = nil
	}
	if len(body) == 0 {
		return nil
	}
	if _, err := pass(a, body); !a.storable() {
		return err
	}
	return nil
}

// complete brings the header into the form in which it leaves and is stored.
func (a *answer) complete() {
	h := a.w.Header()
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	sent := &a.scratch.sent
	declared := sent.get("Trailer")
	if declared != nil || !sent.is(h) {
		a.trailers = takeTrailers(h, declared)
		sent.restore(h)
	}
	if a.stage == buffered {
		a.sniff(h)
	}
}

// takeTrailers returns what is set as trailers, all with http.TrailerPrefix.
func takeTrailers(h http.Header, declared []string) http.Header {
	trailers := http.Header{}
	for name, vs := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			trailers[name] = vs
		}
	}
	for _, list := range declared {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if vs, ok := h[name]; ok {
				trailers[http.TrailerPrefix+name] = vs
			}
		}
	}
	return trailers
}

// sniff names the content type that net/http would find out, so that it is
// stored.
func (a *answer) sniff(h http.Header) {
	if len(a.body) == 0 {
		return
	}
	if _, ok := h["Content-Type"]; ok {
		return
	}
	if _, ok := h["Transfer-Encoding"]; ok || h.Get("Content-Encoding") != "" {
		return
	}
	h.Set("Content-Type", http.DetectContentType(a.body))
}

// end takes the answer away from a handler that has returned, and tells the
// stage it had.
func (a *answer) end() stage {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.stage
	switch {
	case was < fixed:
		a.complete()
	case was == fixed:
		a.scratch.sent.restore(a.w.Header())
	}
	a.stage, a.scratch = closed, nil
	return was
}

// abandon takes the answer away from a handler that did not return.
func (a *answer) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stage, a.scratch = closed, nil
}

// leaveRest ends a streamed answer.
func (a *answer) leaveRest() {
	maps.Copy(a.w.Header(), a.trailers)
	if a.last != nil {
		_, _ = a.w.Write(a.last)
		a.last = nil
	}
}

// leave writes the header to the client. Trailers go with it, for net/http has to
// know of them by then.
func (a *answer) leave() {
	maps.Copy(a.w.Header(), a.trailers)
	a.w.WriteHeader(a.status)
}

// isHeader reports whether nothing comes after the answer's header.
func (a *answer) isHeader() bool {
	return a.declared == 0 || a.status >= 200 && !bodyAllowed(a.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
