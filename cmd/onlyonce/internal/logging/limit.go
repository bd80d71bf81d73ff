package logging

import (
	"sync"
	"time"
)

// limitEvery is how often a Limit allows a message.
const limitEvery = 10 * time.Second

// A Limit keeps a message that any client can cause from filling the log. The zero
// Limit is ready to use.
type Limit struct {
	mu   sync.Mutex
	last time.Time // compared by the monotonic clock; zero: never
}

// Allow reports whether the message may be logged: at most once every ten seconds.
func (l *Limit) Allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() && time.Since(l.last) < limitEvery {
		return false
	}
	l.last = time.Now()
	return true
}
