package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// patience is how long in all a request may wait for its client, to begin
	// with, while others wait for its slot.
	patience = 10 * time.Second
	// mostPatience is how much that grows to with what the client takes or sends.
	mostPatience = 20 * time.Second
	// slowest is how many bytes a second leave it as it is.
	slowest = 10 << 10
	// shortPatience is how long a request may wait at a time, and in all until the
	// client takes or sends as much, if its address holds more than half of the
	// slots and another's waits.
	shortPatience = time.Second
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// A transfer is what a request may have to wait for its client with: its answer or
// its body.
type transfer struct {
	mu    sync.Mutex
	w     http.ResponseWriter // of the request; nil: it may not be ended
	ctx   context.Context
	limit func(*http.ResponseController, time.Time) error
	fault string        // of the client, if it is ended
	since time.Time     // when it began to wait; zero: it does not
	left  time.Duration // of the patience
	ended time.Time     // when it was last ended
	why   error         // it was ended
}

func (t *transfer) open(w http.ResponseWriter, r *http.Request, limit func(*http.ResponseController, time.Time) error, fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w, t.ctx, t.limit, t.fault = w, r.Context(), limit, fault
	t.since, t.left, t.ended, t.why = time.Time{}, patience, time.Time{}, nil
}

// close returns why the transfer was ended, if it was. It is not ended any more.
func (t *transfer) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w, t.ctx = nil, nil
	return t.why
}

// begin and done stand round what may wait for the client.
func (t *transfer) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
}

// done is told how many bytes the client took or sent. It returns why the transfer
// was ended, if it was.
func (t *transfer) done(n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := max(t.left-time.Since(t.since), 0) + time.Duration(n)*(time.Second/slowest)
	t.left, t.since = min(left, mostPatience), time.Time{}
	return t.why
}

// A stall is one wait for the client of a request that holds a slot. It has lasted
// for longer than the short patience.
type stall struct {
	*transfer
	slot  *slot
	since time.Time
	spent bool // and for longer than what is left of the other
}

// stalled returns the stall that the transfer is in; nil: it is in none. A transfer
// that has just been ended is ending instead.
func (t *transfer) stalled(sl *slot, now time.Time) (in *stall, ending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.w == nil:
		return nil, false
	case t.why != nil && now.Sub(t.ended) <= slotWait:
		return nil, true
	case t.since.IsZero():
		return nil, false
	}
	waited := min(now.Sub(t.since), now.Sub(t.ended)) // it may have gone on
	if waited <= min(shortPatience, t.left-(patience-shortPatience)) {
		return nil, false
	}
	return &stall{t, sl, t.since, waited > t.left}, false
}

// end ends the transfer, unless it has gone on: by a deadline, and if it stays in
// the stall then, by closing the connection. A stream of HTTP/2 ends only once its
// connection has taken the frame that says so.
func (in *stall) end() {
	t := in.transfer
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
	if c, ok := t.ctx.Value(connKey{}).(net.Conn); ok {
		_ = c.Close()
	}
}

type connKey struct{}

// withConn is a ConnContext of http.Server.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// A heldAnswer is the answer to a request that holds a slot.
type heldAnswer struct {
	http.ResponseWriter
	slot *slot
}

func (a heldAnswer) Write(p []byte) (int, error) {
	a.slot.answer.begin()
	n, err := a.ResponseWriter.Write(p)
	_ = a.slot.answer.done(n)
	return n, err
}

// WriteHeader tells the body of the answer.
func (a heldAnswer) WriteHeader(status int) {
	if body := a.slot.body; body != nil && (status >= 200 || status == http.StatusSwitchingProtocols) {
		body.answered()
	}
	a.slot.answer.begin()
	a.ResponseWriter.WriteHeader(status)
	_ = a.slot.answer.done(0)
}

// FlushError is what http.ResponseController calls.
func (a heldAnswer) FlushError() error {
	a.slot.answer.begin()
	err := http.NewResponseController(a.ResponseWriter).Flush()
	_ = a.slot.answer.done(0)
	return err
}

func (a heldAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
