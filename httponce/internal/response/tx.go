package response

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
)

// A Mark is the state of a Response to which it can be rewound.
type Mark struct {
	header         http.Header
	status         int
	declared, size int64
}

// EnterTx keeps the response from being sent until LeaveTx.
func (r *Response) EnterTx() (Mark, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.InTx:
		return Mark{}, errors.New("httponce: InTx is called in a transaction: use that transaction")
	case r.stage == Committed:
		return Mark{}, errSealed
	case r.stage == closed:
		return Mark{}, errReturned
	case r.stage != Buffered:
		return Mark{}, errors.New("httponce: InTx is called after part of the response was sent: write and flush less before it")
	}
	r.InTx = true
	return Mark{maps.Clone(r.To.Header()), r.status, r.declared, r.size}, nil
}

// Rewind undoes all writes since m.
func (r *Response) Rewind(m Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed = false; r.stage != Buffered {
		return
	}
	h := r.To.Header()
	clear(h)
	maps.Copy(h, m.header)
	r.status, r.declared, r.size = m.status, m.declared, m.size
	r.body, r.tooLarge, r.unkept = r.body[:min(int(m.size), len(r.body))], false, false
}

// Written returns the status written so far, or 0, and the error of a write that
// failed although the handler may not have noticed, or that is missing.
func (r *Response) Written() (status int, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stage == closed: // the header is no longer the handler's: HTTP/2 panics when it is used
		failed = errReturned
	case r.tooLarge:
		failed = ErrTooLarge
	case r.unkept:
		failed = ErrNoMemory
	default:
		failed = r.Incomplete()
	}
	return r.status, failed
}

// Discard undoes everything.
func (r *Response) Discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discard()
}

func (r *Response) discard() {
	r.Scratch.Base.Restore(r.To.Header())
	r.drop()
	r.status, r.size, r.tooLarge, r.unkept, r.panicked = 0, 0, false, false, false
}

// DiscardUnsent undoes everything and returns true, unless something has been
// sent or is to be committed.
func (r *Response) DiscardUnsent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage != Buffered || r.InTx {
		return false
	}
	r.discard()
	return true
}

// Seal ends the writing of a response that is about to be committed. On an
// error, the transaction must be rolled back, and the response is as it was.
func (r *Response) Seal() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage != Buffered {
		return errReturned
	}
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	if !r.Owner.Commits() {
		return fmt.Errorf("httponce: InTx: rolled back: a response with status %d is not committed", r.status)
	}
	r.complete(nil)
	r.sealed = true
	r.Scratch.sent.Take(r.To.Header())
	return nil
}

// LeaveTx ends the transaction. If its function failed, the response continues.
// Otherwise it is final: it is sent if err, that of the commit, is nil.
func (r *Response) LeaveTx(err, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.InTx, r.sealed = false, false
	if failed == nil && r.stage == Buffered {
		r.stage, r.rejected = Committed, err
	}
}
