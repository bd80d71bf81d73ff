package slots

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// AllowBody limits the time that a request's body may take to arrive, including a part
// that no handler reads: net/http looks for the end of the body once the response is
// written, and then removes the deadline.
func AllowBody(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(limit))
}

// ShortBody is the length, in bytes, up to which the time limit is for all of a
// body.
const ShortBody = 64 << 10

// A TimedBody is the body of a request while it is sent on. The zero TimedBody
// around a ReadCloser has no time limit.
type TimedBody struct {
	io.ReadCloser
	transfer transfer
	w        http.ResponseWriter
	time     time.Duration
	ended    bool

	mu      sync.Mutex
	long    bool      // the limit is for each pause, not for the whole body
	streams bool      // it may continue while the response is sent
	untimed bool      // a pause may last for any time
	set     time.Time // when the time of a long body last began
}

// ErrBodyUnreadable is the error of a body that was truncated.
var ErrBodyUnreadable = errors.New("the request's body was truncated")

// NewTimedBody returns the body of r with a time limit.
func NewTimedBody(w http.ResponseWriter, r *http.Request, limit time.Duration) *TimedBody {
	b := &TimedBody{ReadCloser: r.Body, w: w, time: limit, set: time.Now()}
	b.long = r.ContentLength < 0 || r.ContentLength > ShortBody
	b.streams = b.long && r.ProtoMajor > 1
	b.transfer.open(w, r, (*http.ResponseController).SetReadDeadline, "sent too little of its body, and nothing")
	return b
}

// IsLong reports whether the body has more than ShortBody bytes, or an unknown
// length.
func (b *TimedBody) IsLong() bool { return b.long }

// Read returns io.EOF once the body has ended. net/http closes the body when the
// response begins, and an error would then cut the response short.
func (b *TimedBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	b.allow()
	b.transfer.begin()
	n, err := b.ReadCloser.Read(p)
	switch why := b.transfer.done(n); {
	case err == io.EOF:
		b.ended = true
	case why != nil:
		err = fmt.Errorf("%w: %w", ErrBodyUnreadable, why)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrBodyUnreadable, err)
	}
	return n, err
}

// allow gives the next bytes of a long body their time.
func (b *TimedBody) allow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.long && !b.untimed && now.Sub(b.set) > b.time/8 {
		b.set = now
		AllowBody(b.w, b.time)
	}
}

// responseBegins is called when the response begins. From then on, the upstream may
// wait for more of a stream, so the body is no longer ended while others wait for the
// slot or, over HTTP/2, because it pauses. Over HTTP/1, net/http closes it.
func (b *TimedBody) responseBegins() {
	_ = b.transfer.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams && !b.untimed {
		b.untimed = true
		_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{})
	}
}
