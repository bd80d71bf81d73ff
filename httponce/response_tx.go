package httponce

import (
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// A responseMark is how far an answer has got.
type responseMark struct {
	header         http.Header
	status         int
	declared, size int64
}

// enterTx keeps the answer from leaving until leaveTx.
func (a *bufferedResponse) enterTx() (responseMark, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.inTx:
		return responseMark{}, errors.New("httponce: InTx inside a transaction: use the one that is there")
	case a.stage == committed:
		return responseMark{}, errFixed
	case a.stage == closed:
		return responseMark{}, errReturned
	case a.stage != buffered:
		return responseMark{}, errors.New("httponce: InTx after the answer has begun to leave: write and flush less before it")
	}
	a.inTx = true
	return responseMark{maps.Clone(a.w.Header()), a.status, a.declared, a.size}, nil
}

// rewind undoes what was written since m.
func (a *bufferedResponse) rewind(m responseMark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fixing = false; a.stage != buffered {
		return
	}
	h := a.w.Header()
	clear(h)
	maps.Copy(h, m.header)
	a.status, a.declared, a.size = m.status, m.declared, m.size
	a.body, a.tooLarge, a.unkept = a.body[:min(int(m.size), len(a.body))], false, false
}

// wrote tells the status written so far, or 0, and why not all was taken.
func (a *bufferedResponse) wrote() (status int, failed error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.tooLarge:
		failed = errTooLarge
	case a.unkept:
		failed = errNoMemory
	}
	return a.status, failed
}

// discard undoes everything.
func (a *bufferedResponse) discard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scratch.base.restore(a.w.Header())
	a.drop()
	a.status, a.size, a.tooLarge, a.unkept = 0, 0, false, false
}

// restart undoes everything, if nothing has left and nothing is to be committed.
func (a *bufferedResponse) restart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage != buffered || a.inTx {
		return false
	}
	a.scratch.base.restore(a.w.Header())
	a.drop()
	a.status, a.size, a.unkept = 0, 0, false
	return true
}

// leaveTx lets the answer go on if the transaction's function failed, and fixes it
// otherwise: for good if err is nil, else as one that must not leave.
func (a *bufferedResponse) leaveTx(err, failed error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inTx, a.fixing = false, false
	if failed == nil && a.stage == buffered {
		a.stage, a.refused = committed, err
	}
}

// seal ends the writing of an answer that is about to be committed, and returns
// its settlement; or the error with which to roll back, and the attempt goes on.
func (x *exchange) seal() (s onlyonce.Settlement, err error) {
	a := &x.answer
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stage != buffered {
		return s, errReturned
	}
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	if _, commits := x.verdict(buffered); !commits {
		return s, fmt.Errorf("httponce: InTx: the answer of status %d is not one to commit: rolled back", a.status)
	}
	a.complete(nil)
	a.fixing = true
	a.scratch.sent.snapshot(a.w.Header())
	s, _ = x.settlement(buffered)
	return s, nil
}
