package slots

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/proxy/internal/inbound"
)

const (
	// patience is how long in all a request may at first wait for its client
	// while others wait for its slot.
	patience = 10 * time.Second
	// mostPatience is the maximum to which patience grows as the client reads or sends.
	mostPatience = 20 * time.Second
	// slowest is the rate, in bytes per second, at which it stays the same.
	slowest = 10 << 10
	// shortPatience is how long a request may wait at a time, and in all until
	// the client reads or sends as much, if its address holds more than half of
	// the slots and another address waits.
	shortPatience = time.Second
)

// endWait is how long a transfer that was ended may take to end.
const endWait = time.Second

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// A transfer is the response or the body of a request, for which the request may
// have to wait for its client.
//
// A client has some patience to spend on waiting, which grows as it reads or sends: a slot is one of a few, and a client may use one for long if it makes
// progress all the time. That differs from httponce, where a transfer that holds
// memory is ended for one long pause: there it is the pause that wastes the
// memory, however much was transferred before.
type transfer struct {
	mu    sync.Mutex
	w     http.ResponseWriter // of the request; nil: the transfer must not be ended
	ctx   context.Context
	limit func(*http.ResponseController, time.Time) error // sets the deadline
	fault string                                          // of the client, for the error
	since time.Time                                       // when it began to wait; zero: it does not wait
	left  time.Duration                                   // of the patience
	ended time.Time                                       // when it was last ended
	why   error                                           // why it was ended
}

// open begins the transfer of a request.
func (t *transfer) open(w http.ResponseWriter, r *http.Request, limit func(*http.ResponseController, time.Time) error, fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w, t.ctx, t.limit, t.fault = w, r.Context(), limit, fault
	t.since, t.left, t.ended, t.why = time.Time{}, patience, time.Time{}, nil
}

// close returns why the transfer was ended, if it was. From now on, it is not
// ended.
func (t *transfer) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w, t.ctx = nil, nil
	return t.why
}

// begin and done enclose operations that may wait for the client.
func (t *transfer) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
}

// done is called with the number of bytes that the client read or sent. It
// returns why the transfer was ended, if it was.
func (t *transfer) done(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := max(t.left-time.Since(t.since), 0) + time.Duration(n)*(time.Second/slowest)
	t.left, t.since = min(left, mostPatience), time.Time{}
	return t.why
}

// A stall is one wait for the client. It has lasted for longer than the short
// patience.
type stall struct {
	of    *transfer
	since time.Time
	spent bool // the wait has used up the rest of the patience
}

// stalled returns the stall that the transfer is in; ok is false if it is in none.
// A transfer that has just been ended is ending instead.
func (t *transfer) stalled(now time.Time) (in stall, ok, ending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.w == nil:
		return stall{}, false, false
	case t.why != nil && now.Sub(t.ended) <= endWait:
		return stall{}, false, true
	case t.since.IsZero():
		return stall{}, false, false
	}
	waited := min(now.Sub(t.since), now.Sub(t.ended)) // it may have continued
	if waited <= min(shortPatience, t.left-(patience-shortPatience)) {
		return stall{}, false, false
	}
	return stall{t, t.since, waited > t.left}, true, false
}

// end ends the transfer, unless it has continued: first by a deadline and, if it
// stays in the stall, by closing the connection. A stream of HTTP/2 ends only once
// its connection has sent the frame that says so.
func (in stall) end() {
	t := in.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.w == nil || !t.since.Equal(in.since) {
		return
	}
	again := t.why != nil
	t.ended = time.Now()
	t.why = fmt.Errorf("while others waited for the upstream, the client %s for %v", t.fault, t.ended.Sub(t.since).Round(time.Millisecond))
	if err := t.limit(http.NewResponseController(t.w), longAgo); err == nil && !again {
		return
	}
	if c := inbound.ConnOf(t.ctx); c != nil {
		_ = c.Close()
	}
}
