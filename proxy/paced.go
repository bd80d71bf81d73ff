package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
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

// A timedBody is the body of a request that passes.
type timedBody struct {
	io.ReadCloser
	transfer transfer
	w        http.ResponseWriter
	time     time.Duration
	ended    bool

	mu      sync.Mutex
	long    bool      // every pause has its time, not the whole body
	streams bool      // it may go on while the answer is sent
	untimed bool      // a pause may last for as long as the client likes
	set     time.Time // when the time of a long one last began
}

var errBodyUnreadable = errors.New("the request's body did not come to its end")

func newPaced(w http.ResponseWriter, r *http.Request, limit time.Duration) *timedBody {
	b := &timedBody{ReadCloser: r.Body, w: w, time: limit, set: time.Now()}
	b.long = r.ContentLength < 0 || r.ContentLength > shortBody
	b.streams = b.long && r.ProtoMajor > 1
	b.transfer.open(w, r, (*http.ResponseController).SetReadDeadline, "sent too little of its body, and nothing")
	return b
}

// Read does not go on to what has ended: net/http closes it when the answer
// begins, and an error of it then would cut the answer short.
func (b *timedBody) Read(p []byte) (int, error) {
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
		err = fmt.Errorf("%w: %w", errBodyUnreadable, why)
	case err != nil:
		err = fmt.Errorf("%w: %w", errBodyUnreadable, err)
	}
	return n, err
}

// allow gives the next bytes of a long body their time.
func (b *timedBody) allow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.long && !b.untimed && now.Sub(b.set) > b.time/8 {
		b.set = now
		allowBody(b.w, b.time)
	}
}

// answered is called when the answer begins. From then on the upstream may be one
// that waits for more of a stream: the body is not ended while others wait for the
// slot, and by HTTP/2 not for a pause of any length either. By HTTP/1 net/http
// closes it.
func (b *timedBody) answered() {
	_ = b.transfer.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.streams && !b.untimed {
		b.untimed = true
		_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{})
	}
}

// bufferedBody is a body that has been received, as httponce hands it on.
type bufferedBody interface{ Len() int }
