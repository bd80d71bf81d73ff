package sandboxes

import (
	"errors"
	"maps"
	"sync"
)

// A session is a sandbox's, as its row has it.
type session struct {
	id     string // empty: there is none
	state  string
	server string // that started it
	handle string // of it, or of the last one; empty while it starts
}

// sessions are those that this server started: handles by id. One is in the list
// from before a row names it until after no row does; its handle is empty while
// it starts.
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

// close lets no session start from now on.
func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
