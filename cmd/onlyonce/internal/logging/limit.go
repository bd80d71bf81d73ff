package logging

import (
	"log"
	"log/slog"
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
	mostCauses = 1024
)

// Limits keep messages that any client can cause from filling the log, and from
// hiding those with other causes: of each cause, ten are allowed in ten seconds. The
// zero Limits are ready to use.
type Limits struct {
	mu     sync.Mutex
	causes map[string]*cause
	swept  time.Time // when those whose ten seconds are over were last dropped to make room
}

// A cause is one for which messages were allowed in the ten seconds from began.
type cause struct {
	began         time.Time
	allowed, left int
}

// Allow reports whether a message may be logged. Messages of one route have the same
// cause if their texts differ only in digits and in the text in brackets, such as an
// IPv6 address. left is how many messages with this cause were not allowed within the
// ten seconds before.
func (l *Limits) Allow(route, text string) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.causeOf(route+"\n"+withoutAddresses(text), now)
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
	if l.causes[name] == nil && len(l.causes) >= mostCauses && now.Sub(l.swept) >= time.Second {
		l.swept = now
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

// withoutAddresses returns text without its digits and without the text in brackets.
func withoutAddresses(text string) string {
	in := false
	return strings.Map(func(r rune) rune {
		switch {
		case r == '[':
			in = true
		case r == ']':
			in = false
		case in, '0' <= r && r <= '9':
			return -1
		}
		return r
	}, text)
}

// ServerErrors returns the ErrorLog of an http.Server. Any client can cause lines by
// breaking HTTP/2 connections, or by sending GOAWAY frames, so they have Limits. The cause
// of a line is its text before the first address or quotation.
func ServerErrors(to *slog.Logger) *log.Logger {
	return log.New(&serverErrors{to: to}, "", 0)
}

type serverErrors struct {
	to     *slog.Logger
	limits Limits
}

func (s *serverErrors) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if left, ok := s.limits.Allow("", beforeAddress(text)); ok {
		to := s.to
		if left > 0 {
			to = to.With("not_logged", left)
		}
		to.Warn(text)
	}
	return len(line), nil
}

// beforeAddress returns text up to the first word that begins like an IP address, or with
// a quotation mark.
func beforeAddress(text string) string {
	for i := 1; i < len(text); i++ {
		if text[i-1] == ' ' && strings.IndexByte("0123456789[\"", text[i]) >= 0 {
			return text[:i]
		}
	}
	return text
}
