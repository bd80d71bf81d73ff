package httponce

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// longestSilence is how long a body may send nothing while others wait for
	// memory.
	longestSilence = 500 * time.Millisecond
	// slowestBody is how many bytes a second are not silence.
	slowestBody = 16 << 10
	// silenceCheck is how often silent bodies are looked for.
	silenceCheck = memoryWait / 10
)

// errSilent is why a body is not read on: it was silent while others waited for
// memory.
var errSilent = errors.New("httponce: the request's body did not come while there was no room for others")

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// An upload is a request's body while it comes.
type upload struct {
	grant
	prev, next *upload // in the Usage, whose lock guards them and the grant
	listed     bool

	mu      sync.Mutex
	w       http.ResponseWriter // of the request; nil: nobody reads the body
	reads   uint64              // how often it was read
	until   time.Time           // from then on it is silent
	ended   bool
	endless bool // it can't be ended
}

// list makes a body one that may be ended. The caller has the lock.
func (u *Usage) list(up *upload, g grant) {
	up.grant, up.listed, up.next = g, true, u.uploads
	if up.next != nil {
		up.next.prev = up
	}
	u.uploads = up
}

// unlist undoes list. The caller has the lock.
func (u *Usage) unlist(up *upload) {
	if !up.listed {
		return
	}
	if up.next != nil {
		up.next.prev = up.prev
	}
	if up.prev != nil {
		up.prev.next = up.next
	} else {
		u.uploads = up.next
	}
	up.grant, up.prev, up.next, up.listed = grant{}, nil, nil, false
}

// restart prepares for another request's body.
func (up *upload) restart() {
	up.mu.Lock()
	defer up.mu.Unlock()
	up.until, up.ended, up.endless = time.Now().Add(longestSilence), false, false
}

// read reads on. Its error is errSilent if the body was ended meanwhile, and then
// nothing more can be read.
func (up *upload) read(w http.ResponseWriter, body io.Reader, p []byte) (n int, err error) {
	up.mu.Lock()
	up.w = w
	up.reads++
	up.mu.Unlock()
	defer func() {
		up.mu.Lock()
		defer up.mu.Unlock()
		up.w = nil
		if up.ended {
			err = errSilent
		}
		if err != nil {
			return
		}
		now := time.Now()
		if up.until.Before(now) {
			up.until = now
		}
		up.until = up.until.Add(time.Duration(n) * (time.Second / slowestBody))
		if most := now.Add(longestSilence); up.until.After(most) {
			up.until = most
		}
	}()
	return body.Read(p)
}

// A silence is one of a body, during one read.
type silence struct {
	up    *upload
	read  uint64
	since time.Time
	share *share
	held  int64
}

// silence returns that of a body. The caller has the lock of the Usage.
func (up *upload) silence(now time.Time) (s silence, silent bool) {
	up.mu.Lock()
	defer up.mu.Unlock()
	s = silence{up, up.reads, up.until, up.share, *up.held}
	return s, up.w != nil && !up.endless && now.After(up.until)
}

// end ends the body, unless something of it has come.
func (s silence) end() {
	up := s.up
	up.mu.Lock()
	defer up.mu.Unlock()
	if up.w == nil || up.reads != s.read || up.ended {
		return
	}
	if err := http.NewResponseController(up.w).SetReadDeadline(longAgo); err != nil {
		up.endless = true
		return
	}
	up.ended = true
}

// silent returns the bodies to end for those who wait for memory: those that have
// been silent for longest, as many as are needed; or none, if somebody has just
// looked.
func (u *Usage) silent() (silent []silence) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if now.Sub(u.looked) < silenceCheck {
		return nil
	}
	u.looked = now
	all, each := int64(0), map[*share]int64{}
	for _, c := range u.queue {
		if _, ofTenant := u.lacks(c.grant, c.n, c.class); ofTenant {
			each[c.share] += c.n
		} else {
			all += c.n
		}
	}
	for up := u.uploads; up != nil; up = up.next {
		if s, ok := up.silence(now); ok {
			silent = append(silent, s)
		}
	}
	slices.SortFunc(silent, func(a, b silence) int { return a.since.Compare(b.since) })
	return slices.DeleteFunc(silent, func(s silence) bool {
		switch {
		case s.share != nil && each[s.share] > 0:
			each[s.share] -= s.held
		case all > 0:
			all -= s.held
		default:
			return true
		}
		return false
	})
}
