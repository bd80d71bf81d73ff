package sandboxes

import (
	"errors"
	"maps"
	"sync"
)

// A sessionRow is the sessionRow in the row of a sandbox.
type sessionRow struct {
	id     string // empty: there is none
	state  string
	server string // the server that started it
	handle string // its handle, or that of the last session; empty while it starts
}

// sessions holds the sessions that this server started: their handles by ID. A session
// is added before a row names it, and removed after no row does. Its handle is empty
// while it starts.
type sessions struct {
	mu     sync.Mutex
	closed bool
	list   map[string]string
}

var errClosed = errors.New("the server is stopping")

func (s *sessions) add(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.list[id] = ""
	return nil
}

func (s *sessions) started(id, handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list[id] = handle
}

func (s *sessions) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, id)
}

func (s *sessions) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.list[id]
	return ok
}

func (s *sessions) all() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.list)
}

// close prevents further sessions from starting.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
