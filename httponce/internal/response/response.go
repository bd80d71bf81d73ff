// Package response keeps the response of a handler until it has been recorded. A
// Response that has to stream, or is too long, is passed on while it is written,
// with a copy for the record. A Response of a transaction leaves only after the
// commit. The memory of the copy is taken from a resources.Flow.
package response

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/internal/interim"
)

// A Response is the response that a handler writes to its Writer. Every run of a handler has
// a new one, which is closed when the handler has returned.
//
// Status, Body, Header, Trailers and Incomplete are for a Response that is closed or
// sealed, for the handler can no longer change these.
type Response struct {
	Setup

	mu       sync.Mutex
	stage    Stage
	sealed   bool // its rows are being committed with it, so it must not change
	tooLarge bool // for a transaction
	unkept   bool // the body is too long to be stored, or there is no memory for it
	refused  bool // a write failed because the client has gone, so the handler may have stopped
	timedOut atomic.Bool
	panicked bool        // a function that had recovered from a panic wrote a status
	returned atomic.Bool // the handler, as stage says with the lock
	status   int         // 0: not written yet
	declared int64
	size     int64 // of the body as written
	body     []byte
	last     []byte // of a streamed body of a declared length: its last byte, held back
	trailers http.Header
	rejected error     // why the transaction could not commit
	extra    [1]string // memory for the value of SetField
}

// A Setup is the environment of a Response.
type Setup struct {
	To      http.ResponseWriter // the client's
	Context context.Context     // ends the waiting for memory
	Owner   Owner
	Memory  *resources.Flow // of the body
	Scratch *Scratch        // not used after the Response is closed
	MaxBody int             // the longest body that is stored, in bytes
	InTx    bool            // rows are not committed yet: nothing may be sent
}

// An Owner is notified of the events that a Response observes of its handler.
type Owner interface {
	// WroteLate is called for a write after the handler has returned, or after InTx
	// has committed the response.
	WroteLate()
	// BeginsToStream is called before the header is sent of a response that
	// streams.
	BeginsToStream()
	// Commits reports whether a response that is about to be sealed is one to
	// commit.
	Commits() bool
}

// A Scratch is memory for one Response after another.
type Scratch struct {
	Base Snapshot // the header before the handler ran
	sent Snapshot // the header as of WriteHeader
}

// Clear drops all data of a Response.
func (s *Scratch) Clear() {
	s.Base.Clear()
	s.sent.Clear()
}

// A Stage tells where the bytes of a Response go.
type Stage uint8

const (
	Buffered  Stage = iota
	Streamed        // to the client
	Committed       // it is recorded, and can't change
	Hijacked        // the connection is the handler's
	closed          // the handler has returned
)

var (
	// ErrTooLarge means that a response is too large for a transaction.
	ErrTooLarge = errors.New("httponce: the response is too large for a transaction")
	// ErrNoMemory means that there is no memory for a response in a transaction.
	ErrNoMemory = errors.New("httponce: there is no memory for the response")
	// ErrIncomplete means that a handler has written less than it has declared.
	ErrIncomplete = errors.New("httponce: the handler wrote only a part of its response")

	errSealed   = errors.New("httponce: the response was committed by InTx and can't be changed")
	errSaved    = fmt.Errorf("%w", errSealed) // and what is written is missing in it
	errReturned = errors.New("httponce: the handler has returned")
)

const (
	// Uncounted is the part of a response that takes no memory from its Flow.
	Uncounted = 4 << 10
	// txFactor is how many times MaxBody a response in a transaction may have,
	// because it can't stream.
	txFactor = 16
	// sniffed is how many bytes of a body determine its content type.
	sniffed = 512
)

// Start prepares a new Response.
func (r *Response) Start(s Setup) { r.Setup = s }

// Status returns the status, or 0 if none was written.
func (r *Response) Status() int { return r.status }

// Body returns the body that was kept.
func (r *Response) Body() []byte { return r.body }

// Header returns the header, including fields that others have set.
func (r *Response) Header() http.Header { return r.To.Header() }

// Trailers returns the trailers, all with http.TrailerPrefix.
func (r *Response) Trailers() http.Header { return r.trailers }

// IsComplete reports whether all of the body was kept.
func (r *Response) IsComplete() bool { return r.storable() }

// TimedOut reports whether the response is that of an http.TimeoutHandler that
// has given up on its handler.
func (r *Response) TimedOut() bool { return r.timedOut.Load() }

// Panicked reports whether the handler panicked and a function that recovered from the panic
// wrote a status of 500 or more.
func (r *Response) Panicked() bool { return r.panicked }

// Rejected returns why the transaction could not be committed, or nil.
func (r *Response) Rejected() error { return r.rejected }

// begin sets the status that the handler has written.
func (r *Response) begin(status int) {
	h := r.To.Header()
	r.status, r.declared = status, declaredIn(h)
	r.Scratch.sent.Take(h)
}

// declaredIn returns the length of the body that a header declares, or -1.
func declaredIn(h http.Header) int64 {
	if v := h["Content-Length"]; len(v) > 0 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// Incomplete returns ErrIncomplete with the lengths if the handler has written less
// than it has declared, unless that is because its client has gone.
func (r *Response) Incomplete() error {
	status, declared := r.status, r.declared
	if status == 0 {
		status, declared = http.StatusOK, declaredIn(r.To.Header())
	}
	if r.refused || r.size >= declared || !bodyAllowed(status) {
		return nil
	}
	return fmt.Errorf("%w: %d of the %d bytes that its Content-Length declares", ErrIncomplete, r.size, declared)
}

// writeHeader reports whether it is not too late for a status.
func (r *Response) writeHeader(status int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status >= http.StatusInternalServerError && r.stage < Committed && writesAfterPanic() {
		r.panicked = true
	}
	if r.stage >= Committed || r.status != 0 {
		return r.stage != closed && (!r.isSaved() || status == r.status || status < 200)
	}
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		interim.Write(r.To, status)
		return true
	}
	r.begin(status)
	return true
}

// admit reports whether n more bytes may be written.
func (r *Response) admit(n int) error {
	if r.sealed {
		return errSealed
	}
	switch r.stage {
	case Committed:
		if r.isSaved() {
			return errSaved
		}
		return errSealed
	case Hijacked:
		return http.ErrHijacked
	case closed:
		return errReturned
	}
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	switch {
	case n == 0:
		return nil
	case !bodyAllowed(r.status):
		return http.ErrBodyNotAllowed
	case r.declared >= 0 && r.size+int64(n) > r.declared:
		return http.ErrContentLength
	}
	return nil
}

// isSaved reports whether the response is committed. What the handler writes after a commit that
// failed is not missed: it is a response to that failure, and the client gets another.
func (r *Response) isSaved() bool { return r.stage == Committed && r.rejected == nil }

// keep keeps p, or passes it on and keeps a copy.
func keep[P []byte | string](r *Response, p P) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if r.status == http.StatusServiceUnavailable && r.size == 0 && writesForTimeout() {
		r.timedOut.Store(true)
	}
	size := r.size + int64(len(p))
	if r.InTx && size > txFactor*int64(r.MaxBody) {
		r.tooLarge = true
		return 0, ErrTooLarge
	}
	r.unkept = r.unkept || !r.InTx && size > int64(r.MaxBody) || !r.reserve(len(p))
	if r.unkept && r.InTx {
		return 0, ErrNoMemory
	}
	if r.unkept {
		if r.stage == Buffered {
			if err := r.stream([]byte(p[:min(len(p), sniffed)])); err != nil { // sends the kept part; pass sends p
				r.refused = true
				return 0, err
			}
		}
		r.drop()
		r.size = size
		n, err := pass(r, p)
		r.refused = r.refused || err != nil
		return n, err
	}
	r.size = size
	r.body = append(r.body, p...)
	if r.stage == Streamed {
		_, _ = pass(r, p) // the command continues without its client
	}
	return len(p), nil
}

// reserve makes room for n more bytes of the body, and reports whether there is
// memory for it.
func (r *Response) reserve(n int) bool {
	need := len(r.body) + n
	if need <= cap(r.body) {
		return true
	}
	room := max(need, 2*cap(r.body), 512)
	if r.declared >= int64(need) && !r.isLong() {
		room = int(r.declared)
	}
	if !r.takeMemory(room) {
		if room = need; !r.waitForMemory(room) {
			return false
		}
	}
	grown := make([]byte, len(r.body), room)
	copy(grown, r.body)
	r.body = grown
	return true
}

// takeMemory takes the memory for so much of the body if it is free now.
func (r *Response) takeMemory(room int) bool {
	more := r.lacks(room)
	return more == 0 || r.Memory.Take(more, int64(room))
}

// waitForMemory takes the memory for so much of the body as soon as it is free,
// and reports whether it was in time. The waiting does not end with the client.
// A response in a transaction does not wait, because others wait for the
// transaction's locks.
func (r *Response) waitForMemory(room int) bool {
	more := r.lacks(room)
	switch {
	case more == 0:
		return true
	case r.InTx:
		return r.Memory.TakeOrEndSilent(more, int64(room)) == nil
	}
	return r.Memory.Wait(r.Context, more, int64(room)) == nil
}

// lacks returns how much memory is to be taken for so much of the body.
func (r *Response) lacks(room int) int64 {
	return max(int64(room-Uncounted)-r.Memory.Held(), 0)
}

// isLong reports whether the body is declared to be longer than is kept.
func (r *Response) isLong() bool {
	return r.declared > int64(r.MaxBody) && (!r.InTx || r.declared > txFactor*int64(r.MaxBody))
}

// drop drops the body and gives its memory back.
func (r *Response) drop() {
	r.body = nil
	r.Memory.GiveBack()
}

// pass passes p on, except the last byte of a body of a declared length: a
// client that has all of it may retry at once, so the response is recorded before
// that. Without a declared length, the client waits for the end that net/http writes.
func pass[P []byte | string](r *Response, p P) (int, error) {
	if r.size != r.declared {
		return resources.Deliver(r.Memory, r.To, p)
	}
	end := len(p) - 1
	r.last = []byte{p[end]}
	if n, err := resources.Deliver(r.Memory, r.To, p[:end]); err != nil {
		return n, err
	}
	return len(p), nil
}

// storable reports whether the body as written so far is to be stored.
func (r *Response) storable() bool { return !r.unkept && r.size <= int64(r.MaxBody) }

// stream begins to send the response while it is written. next is the beginning
// of the part that follows the part already written.
func (r *Response) stream(next []byte) error {
	r.complete(next)
	h := r.To.Header()
	r.Scratch.sent.Take(h)
	r.stage = Streamed
	r.Owner.BeginsToStream()
	r.To.WriteHeader(r.status)
	maps.Copy(h, r.trailers)
	body := r.body
	if len(body) == 0 {
		return nil
	}
	if _, err := pass(r, body); !r.storable() {
		return err
	}
	return nil
}

// complete brings the header into the form in which it is sent and stored.
func (r *Response) complete(next []byte) {
	h := r.To.Header()
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	sent := &r.Scratch.sent
	if declared, ok := sent.get("Trailer"); ok || !sent.equal(h) {
		r.trailers = takeTrailers(h, declared)
		sent.Restore(h)
	}
	if r.stage == Buffered {
		r.sniff(h, next)
	}
}

// takeTrailers returns the trailers that are set, all with http.TrailerPrefix.
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

// sniff sets the content type that net/http would detect, so that it is stored.
func (r *Response) sniff(h http.Header, next []byte) {
	begin := r.body
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

// Close ends the writing of a handler that has returned, and returns the stage of the
// response.
func (r *Response) Close() Stage {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.stage
	switch {
	case was < Committed:
		r.complete(nil)
	case was == Committed:
		r.Scratch.sent.Restore(r.To.Header())
	}
	r.close()
	return was
}

// Abandon ends the writing of a handler that did not return, and returns the stage of the
// response.
func (r *Response) Abandon() Stage {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.stage
	r.close()
	return was
}

func (r *Response) close() {
	r.returned.Store(true)
	r.stage, r.Scratch, r.Memory = closed, nil, nil
}

// IsHeldBack reports whether nothing of the response has been sent.
func (r *Response) IsHeldBack() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stage == Buffered || r.stage == Committed
}

// IsUntouched reports whether nothing has been written to the response.
func (r *Response) IsUntouched() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stage == Buffered && r.status == 0
}

// SetField adds a field to the header of a closed response that has not been
// sent.
func (r *Response) SetField(name, value string) {
	r.extra[0] = value
	r.To.Header()[name] = r.extra[:]
}

// SendHeader sends the header of a closed response. Its trailers go with it,
// because net/http must know them by then.
func (r *Response) SendHeader() {
	maps.Copy(r.To.Header(), r.trailers)
	r.To.WriteHeader(r.status)
}

// SendEnd sends the part of a closed, streamed response that was held back.
func (r *Response) SendEnd() {
	maps.Copy(r.To.Header(), r.trailers)
	if r.last != nil {
		_, _ = r.To.Write(r.last)
		r.last = nil
	}
}

// isHeader reports whether the response has no body.
func (r *Response) isHeader() bool {
	return r.declared == 0 || r.status >= 200 && !bodyAllowed(r.status)
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
