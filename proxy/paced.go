package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// allowBody says how long a request's body may take, also what nobody reads of it:
// net/http looks for its end once the request is answered. It ends the
// deadline with the body. A made request has none.
func allowBody(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
}

// shortBody is the length up to which a body has its time for all of it, in bytes.
const shortBody = 64 << 10

// A paced is the body of a request that passes.
type paced struct {
	io.ReadCloser
	transfer transfer
	w        http.ResponseWriter // of a long one, whose every pause has its time; nil: it is short
	time     time.Duration
	set      time.Time
	ended    bool
}

var errBodyUnreadable = errors.New("the request's body did not come to its end")

func newPaced(w http.ResponseWriter, r *http.Request, limit time.Duration) *paced {
	b := &paced{ReadCloser: r.Body}
	if r.ContentLength < 0 || r.ContentLength > shortBody {
		b.w, b.time, b.set = w, limit, time.Now()
	}
	b.transfer.open(w, r, (*http.ResponseController).SetReadDeadline, "sent too little of its body, and nothing")
	return b
}

// Read does not go on to what has ended: net/http closes it when the answer
// begins, and an error of it then would cut the answer short.
func (b *paced) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	if b.w != nil {
		if now := time.Now(); now.Sub(b.set) > b.time/8 {
			b.set = now
			allowBody(b.w, b.time)
		}
	}
	b.transfer.begin()
	n, err := b.ReadCloser.Read(p)
	switch why := b.transfer.done(n); {
	case err == io.EOF:
		b.ended = true
	case why != nil:
		err = fmt.Errorf("%w: %w", errBodyUnreadable, why)
	case err != nil:
		err = fmt.Errorf("%w: %w", errBodyUnreadable, err)
	}
	return n, err
}

// inMemory is a body that has been received, as httponce hands it on.
type inMemory interface{ Len() int }
