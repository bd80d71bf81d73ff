package logging

import (
	"maps"
	"strings"
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

const (
	// limitEach is how many messages with one cause Limits allow in ten seconds.
	limitEach = 10
	// mostCauses is how many causes are told apart.
	mostCauses = 64
)

// Limits keep messages that any client can cause from filling the log, and from
// hiding those with other causes: of each cause, ten are allowed in ten seconds. The
// zero Limits are ready to use.
type Limits struct {
	mu     sync.Mutex
	causes map[string]*cause
}

// A cause is one for which messages were allowed in the ten seconds from began.
type cause struct {
	began         time.Time
	allowed, left int
}

// Allow reports whether a message may be logged. Texts that differ only in their
// digits have the same cause. left is how many messages with this cause were not
// allowed within the ten seconds before.
func (l *Limits) Allow(text string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.causeOf(withoutDigits(text), now)
	if now.Sub(c.began) >= limitEvery {
		left = c.left
		*c = cause{began: now}
	}
	if c.allowed == limitEach {
		c.left++
		return 0, false
	}
	c.allowed++
	return left, true
}

// causeOf returns the cause with a name, or one that is shared by those for which there
// is no room.
func (l *Limits) causeOf(name string, now time.Time) *cause {
	if l.causes == nil {
		l.causes = make(map[string]*cause)
	}
	if l.causes[name] == nil && len(l.causes) >= mostCauses {
		maps.DeleteFunc(l.causes, func(_ string, c *cause) bool { return now.Sub(c.began) >= limitEvery })
	}
	if l.causes[name] == nil && len(l.causes) >= mostCauses {
		name = ""
	}
	c := l.causes[name]
	if c == nil {
		c = &cause{began: now}
		l.causes[name] = c
	}
	return c
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}
