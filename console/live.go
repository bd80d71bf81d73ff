package console

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	maxStreams   = 64               // pages that are live at a time
	tokenStreams = 16               // of them those of a token
	streamLife   = 10 * time.Minute // then the browser connects again
	writeLimit   = 10 * time.Second // a client has for an event
)

// streams are the live pages, by the hashes of the tokens.
type streams struct {
	mu      sync.Mutex
	total   int
	byToken map[[sha256.Size]byte]int
}

// begin reports whether another page may be live; if so, end must be called.
func (s *streams) begin(t Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxStreams || s.byToken[t.Hash] >= tokenStreams {
		return false
	}
	if s.byToken == nil {
		s.byToken = make(map[[sha256.Size]byte]int)
	}
	s.total++
	s.byToken[t.Hash]++
	return true
}

func (s *streams) end(t Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	s.byToken[t.Hash]--
}

// An update has the parts of an open page that change.
type update struct {
	Text map[string]string `json:"text"`
	Tone map[string]string `json:"tone"`
	Path map[string]string `json:"path"`
}

// live sends updates of the overview as server-sent events while the session lasts. An
// open page does not keep a session from becoming idle.
func (c *console) live(w http.ResponseWriter, r *http.Request) {
	s := c.sessionOf(r, false)
	if s == nil {
		http.Error(w, "You are not logged in.", http.StatusForbidden)
		return
	}
	if !c.streams.begin(s.Token) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "Too many pages are live. Reload the page to see new numbers.", http.StatusServiceUnavailable)
		return
	}
	defer c.streams.end(s.Token)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	conn := http.NewResponseController(w)
	tick := time.NewTicker(gaugeEvery)
	defer tick.Stop()
	for end := time.Now().Add(streamLife); time.Now().Before(end); {
		event := "event: end\ndata: \n\n"
		valid := c.sessions.find(s.id, time.Now(), false) != nil
		if valid {
			o := c.newOverview(r.Context())
			data, err := json.Marshal(update{o.Text, o.Tone, o.Path})
			if err != nil {
				return // maps of strings can be encoded
			}
			event = fmt.Sprintf("data: %s\n\n", data)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(writeLimit)) // a writer without deadlines has its own
		if _, err := w.Write([]byte(event)); err != nil || conn.Flush() != nil || !valid {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
