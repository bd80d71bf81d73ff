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

	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
)

// A bufferedResponse is the ResponseWriter of a keyed request: it keeps what the handler
// writes until that is recorded, or passes it on and keeps a copy if it has to
// stream. Every request has a new one, which does nothing after its handler
// has returned.
type bufferedResponse struct {
	w     http.ResponseWriter
	cfg   *Config
	layer *middleware
	of    *exchange

	mu       sync.Mutex
	scratch  *callBuffers // nil once it is closed
	stage    stage
	inTx     bool // rows are not committed yet: nothing may leave
	fixing   bool // they are being committed with the answer as it is
	status   int  // 0: not written yet
	declared int64
	size     int64 // of the body as written
	body     []byte
	last     []byte // of a streamed body of a declared length: its last byte, held back
	trailers http.Header
	tooLarge bool  // for a transaction
	unkept   bool  // its body is too long to be stored, or there is no memory for it
	refused  error // why InTx could not commit
}

// A stage says where the bytes of an answer go.
type stage int

const (
	buffered stage = iota
	streamed
	committed // it is recorded
	hijacked  // the connection is the handler's
	closed    // the handler has returned
)

var (
	errFixed    = errors.New("httponce: the answer was committed by InTx and can't be changed")
	errReturned = errors.New("httponce: the handler has returned")
	errTooLarge = errors.New("httponce: the answer is too large for a transaction")
	errNoMemory = errors.New("httponce: there is no memory for the answer")
)

// txFactor is how many times Config.MaxAnswer an answer may have that can't
// stream, for its rows are not committed.
const txFactor = 16

func (a *bufferedResponse) Header() http.Header { return a.w.Header() }

func (a *bufferedResponse) WriteHeader(status int) {
	if !a.writeHeader(status) {
		a.of.late()
	}
}

// writeHeader reports whether the handler has not returned yet.
func (a *bufferedResponse) writeHeader(status int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage >= committed || a.status != 0 {
		return a.stage != closed
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		a.w.WriteHeader(status)
		return true
	}
	a.begin(status)
	return true
}

func (a *bufferedResponse) begin(status int) {
	a.status, a.declared = status, -1
	h := a.w.Header()
	a.scratch.sent.snapshot(h)
	if v := h["Content-Length"]; len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			a.declared = n
		}
	}
}

func (a *bufferedResponse) Write(p []byte) (int, error)       { return write(a, p) }
func (a *bufferedResponse) WriteString(s string) (int, error) { return write(a, s) }

func write[P []byte | string](a *bufferedResponse, p P) (int, error) {
	n, err := keep(a, p)
	if err == errReturned {
		a.of.late()
	}
	return n, err
}

// keep keeps p, or passes it on and keeps a copy.
func keep[P []byte | string](a *bufferedResponse, p P) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if a.status == http.StatusServiceUnavailable && a.size == 0 && givenUp() {
		a.of.flags.Or(markUnknown | markGivenUp)
	}
	size := a.size + int64(len(p))
	if a.inTx && size > txFactor*int64(a.cfg.MaxAnswer) {
		a.tooLarge = true
		return 0, errTooLarge
	}
	a.unkept = a.unkept || !a.inTx && size > int64(a.cfg.MaxAnswer) || !a.reserve(len(p))
	if a.unkept && a.inTx {
		return 0, errNoMemory
	}
	if a.unkept {
		if a.stage == buffered {
			if err := a.stream([]byte(p[:min(len(p), sniffed)])); err != nil { // what there is, and then p
				return 0, err
			}
		}
		a.drop()
		a.size = size
		return pass(a, p)
	}
	a.size = size
	a.body = append(a.body, p...)
	if a.stage == streamed {
		_, _ = pass(a, p) // the command goes on without its client
	}
	return len(p), nil
}

// reserve makes room for n more bytes of the body, and reports whether there is
// memory for it.
func (a *bufferedResponse) reserve(n int) bool {
	need := len(a.body) + n
	if need <= cap(a.body) {
		return true
	}
	room := max(need, 2*cap(a.body), 512)
	if a.declared >= int64(need) && !a.isLong() {
		room = int(a.declared)
	}
	if !a.takes(room) {
		if room = need; !a.waits(room) {
			return false
		}
	}
	grown := make([]byte, len(a.body), room)
	copy(grown, a.body)
	a.body = grown
	return true
}

// takes takes the memory for so much of the body if there is as much at once.
func (a *bufferedResponse) takes(room int) bool {
	more := a.lacks(room)
	return more == 0 || a.scratch.uses.Response.Take(more, int64(room))
}

// waits takes the memory for so much of the body as soon as there is as much, and
// reports whether there was in time. It does not end with the client. In a
// transaction it does not wait: that would keep up those who wait for its locks.
func (a *bufferedResponse) waits(room int) bool {
	more, memory := a.lacks(room), &a.scratch.uses.Response
	switch {
	case more == 0:
		return true
	case a.inTx:
		return memory.TakeOrEndSilent(&a.of.run, more, int64(room)) == nil
	}
	return memory.Wait(&a.of.run, more, int64(room)) == nil
}

// lacks returns how much memory is to be taken for so much of the body.
func (a *bufferedResponse) lacks(room int) int64 {
	return max(int64(room-freeAnswer)-a.scratch.uses.Response.Held(), 0)
}

// isLong reports whether the body is declared to be longer than is kept.
func (a *bufferedResponse) isLong() bool {
	return a.declared > int64(a.cfg.MaxAnswer) && (!a.inTx || a.declared > txFactor*int64(a.cfg.MaxAnswer))
}

// drop forgets the body, and gives its memory back.
func (a *bufferedResponse) drop() {
	a.body = nil
	a.scratch.uses.Response.GiveBack()
}

// pass lets p leave as it comes, but for the last byte of a body of a declared
// length: a client that has all of it may ask again at once, so it is recorded
// before. Without a length, net/http's own end of the body tells the client.
func pass[P []byte | string](a *bufferedResponse, p P) (int, error) {
	if a.size != a.declared {
		return resources.Deliver(&a.scratch.uses.Response, a.w, p)
	}
	end := len(p) - 1
	a.last = []byte{p[end]}
	if n, err := resources.Deliver(&a.scratch.uses.Response, a.w, p[:end]); err != nil {
		return n, err
	}
	return len(p), nil
}

// storable reports whether the body as written so far is to be stored.
func (a *bufferedResponse) storable() bool { return !a.unkept && a.size <= int64(a.cfg.MaxAnswer) }

// admit reports whether n more bytes may be written.
func (a *bufferedResponse) admit(n int) error {
	if a.fixing {
		return errFixed
	}
	switch a.stage {
	case committed:
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
func (a *bufferedResponse) ReadFrom(src io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(onlyWriter{a}, src, buf[:])
}

type onlyWriter struct{ io.Writer }

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// stream lets the answer leave as it comes; next is the beginning of what follows
// what was written.
func (a *bufferedResponse) stream(next []byte) error {
	a.complete(next)
	h := a.w.Header()
	a.scratch.sent.snapshot(h)
	a.stage = streamed
	if a.of.body.Len() == 0 {
		a.layer.dropBody(&a.scratch.call)
	}
	a.w.WriteHeader(a.status)
	maps.Copy(h, a.trailers)
	body := a.body
	if len(body) == 0 {
		return nil
	}
	if _, err := pass(a, body); !a.storable() {
		return err
	}
	return nil
}

// complete brings the header into the form in which it leaves and is stored.
func (a *bufferedResponse) complete(next []byte) {
	h := a.w.Header()
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	sent := &a.scratch.sent
	declared := sent.get("Trailer")
	if declared != nil || !sent.equal(h) {
		a.trailers = takeTrailers(h, declared)
		sent.restore(h)
	}
	if a.stage == buffered {
		a.sniff(h, next)
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

// sniffed is how much of a body tells its type.
const sniffed = 512

// sniff names the content type that net/http would find out, so that it is
// stored.
func (a *bufferedResponse) sniff(h http.Header, next []byte) {
	begin := a.body
	if len(begin) < sniffed {
		begin = append(begin[:len(begin):len(begin)], next...)
	}
	if len(begin) == 0 {
		return
	}
	if _, ok := h["Content-Type"]; ok {
		return
	}
	if _, ok := h["Transfer-Encoding"]; ok || h.Get("Content-Encoding") != "" {
		return
	}
	h.Set("Content-Type", http.DetectContentType(begin))
}

// end takes the answer away from a handler that has returned, and tells the
// stage it had.
func (a *bufferedResponse) end() stage {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.stage
	switch {
	case was < committed:
		a.complete(nil)
	case was == committed:
		a.scratch.sent.restore(a.w.Header())
	}
	a.stage, a.scratch = closed, nil
	return was
}

// abandon takes the answer away from a handler that did not return.
func (a *bufferedResponse) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stage, a.scratch = closed, nil
}

// writeTail ends a streamed answer.
func (a *bufferedResponse) writeTail() {
	maps.Copy(a.w.Header(), a.trailers)
	if a.last != nil {
		_, _ = a.w.Write(a.last)
		a.last = nil
	}
}

// writeHead writes the header to the client. Trailers go with it, for net/http has to
// know of them by then.
func (a *bufferedResponse) writeHead() {
	maps.Copy(a.w.Header(), a.trailers)
	a.w.WriteHeader(a.status)
}

// isHeader reports whether nothing comes after the answer's header.
func (a *bufferedResponse) isHeader() bool {
	return a.declared == 0 || a.status >= 200 && !bodyAllowed(a.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
