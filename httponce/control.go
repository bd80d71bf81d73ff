package httponce

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

func (a *bufferedResponse) Flush() { _ = a.FlushError() }

// FlushError is what http.ResponseController calls. From now on, the response
// streams, unless it belongs to a transaction or the flush would send all of
// it. A complete response waits until the handler ends, so that it is recorded
// before it is sent.
func (a *bufferedResponse) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inTx && a.stage == buffered {
		return http.ErrNotSupported
	}
	if err := a.admit(0); err != nil {
		return err
	}
	if !canFlush(a.w) {
		return http.ErrNotSupported
	}
	if a.isHeader() {
		return nil
	}
	if a.stage == buffered {
		if err := a.stream(nil); err != nil {
			return err
		}
	}
	err := http.NewResponseController(a.w).Flush()
	if a.storable() {
		return nil
	}
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

// reaches reports whether w, or what it wraps, can do something.
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
func (a *bufferedResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.inTx || !canHijack(a.w):
		return nil, nil, http.ErrNotSupported
	case a.stage == committed:
		return nil, nil, errFixed
	case a.stage == hijacked:
		return nil, nil, http.ErrHijacked
	case a.stage == closed:
		return nil, nil, errReturned
	}
	if a.status != 0 && a.stage == buffered {
		_ = a.stream(nil) // as much as the client takes
	}
	if a.last != nil {
		a.writeTail() // nothing is recorded that it could wait for
		_ = http.NewResponseController(a.w).Flush()
	}
	conn, rw, err := http.NewResponseController(a.w).Hijack()
	if err == nil {
		a.stage = hijacked
	}
	return conn, rw, err
}

func (a *bufferedResponse) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(a.w).SetReadDeadline(t)
}

func (a *bufferedResponse) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(a.w).SetWriteDeadline(t)
}

func (a *bufferedResponse) EnableFullDuplex() error {
	return http.NewResponseController(a.w).EnableFullDuplex()
}
