package resources

import (
	"net/http"
	"sync"
	"time"
)

const (
	// longestSilence is how long a body may send nothing while others wait for
	// memory.
	longestSilence = 500 * time.Millisecond
	// slowestBody is the rate, in bytes per second, at which a body that holds
	// little memory never counts as silent. The part of the first megabyte
	// that a body holds must arrive within slowestWhole.
	slowestBody  = 16 << 10
	slowestWhole = 10 * time.Second
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// A transfer measures a body while it arrives, or a response while it is sent. Each
// Read and each Write is a turn. A turn that takes too long can be ended by a deadline
// of its connection.
type transfer struct {
	mu      sync.Mutex
	limit   func(*http.ResponseController, time.Time) error // sets the deadline
	w       http.ResponseWriter                             // during a turn, otherwise nil
	turns   uint64                                          // number of turns so far
	until   time.Time                                       // the transfer is silent from then on
	ended   time.Time                                       // when the turn was ended; zero: it was not
	endless bool                                            // the ResponseWriter does not support deadlines
}

// prepare prepares the transfer for another request.
func (t *transfer) prepare(limit func(*http.ResponseController, time.Time) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit, t.endless = limit, false
}

// beginTurn begins a Read or a Write. The transfer is silent from until on; if
// until is zero, from the time that was set before.
func (t *transfer) beginTurn(w http.ResponseWriter, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w, t.ended = w, time.Time{}
	t.turns++
	if !until.IsZero() {
		t.until = until
	}
}

// endTurn reports whether the turn was ended before.
func (t *transfer) endTurn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w = nil
	return !t.ended.IsZero()
}

// arrived gives a body that holds so many bytes of memory time for the n bytes
// that have arrived.
func (t *transfer) arrived(n int, held int64) {
	each := min(time.Second/slowestBody, slowestWhole/time.Duration(min(max(held, 1), 1<<20)))
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.until.Before(now) {
		t.until = now
	}
	t.until = t.until.Add(time.Duration(n) * each)
	if most := now.Add(longestSilence); t.until.After(most) {
		t.until = most
	}
}

// A silence is the silence of a transfer during one turn.
type silence struct {
	of    *transfer
	turn  uint64
	since time.Time
	ended time.Time // when the turn was ended, if the transfer continues even so; zero: it was not ended
}

// silentSince returns the transfer's silence; ok is false if it is not silent,
// or can't be ended.
func (t *transfer) silentSince(now time.Time) (s silence, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return silence{t, t.turns, t.until, t.ended}, t.w != nil && !t.endless && now.After(t.until)
}

// end ends the transfer, unless its turn is over.
func (s silence) end() {
	t := s.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.w == nil || t.turns != s.turn {
		return
	}
	switch err := t.limit(http.NewResponseController(t.w), longAgo); {
	case err != nil:
		t.endless = true
	case t.ended.IsZero():
		t.ended = time.Now()
	}
}
