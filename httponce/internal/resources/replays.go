package resources

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A Command is the identity of the request that a stored response belongs to.
type Command struct{ Tenant, Operation, Key string }

const (
	// longReplay is the length from which on a stored response is remembered. The
	// store reads shorter ones for a few callers at a time, which takes little.
	longReplay = 64 << 10
	// mostReplays is how many are remembered at least, of those that are in use.
	mostReplays = 1 << 16
)

// replays remember how much memory the replays of commands need, so that a repeat
// waits for its memory before its response is read from the store, not after. What is
// forgotten, or was stored by another process, is learned from the first replay. The
// zero value is ready to use.
type replays struct {
	used            atomic.Bool // one has been remembered; most programs have no such response, and need no lock
	mu              sync.Mutex
	recent, earlier map[uint64]int64 // by the command's hash: one in 2^64 waits for too much or too little
}

var replaySeed = maphash.MakeSeed()

// set notes that a replay of the command needs n bytes.
func (s *replays) set(c Command, n int64) {
	if n < longReplay && !s.used.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Store(true)
	hash := maphash.Comparable(replaySeed, c)
	if n < longReplay {
		delete(s.recent, hash)
		delete(s.earlier, hash)
		return
	}
	if len(s.recent) >= mostReplays {
		s.recent, s.earlier = nil, s.recent
	}
	if s.recent == nil {
		s.recent = make(map[uint64]int64)
	}
	s.recent[hash] = n
}

// get returns how many bytes a replay of the command needs, or 0 if that is not known.
func (s *replays) get(c Command) int64 {
	if !s.used.Load() {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := maphash.Comparable(replaySeed, c)
	if n, ok := s.recent[hash]; ok {
		return n
	}
	return s.earlier[hash]
}

// SetReplay notes that a replay of the command needs n bytes of memory.
func (q *Quota) SetReplay(c Command, n int64) { q.usage.replays.set(c, n) }

// Replay returns how many bytes of memory a replay of the command needs, or 0 if it
// is short, or if that is not known.
func (q *Quota) Replay(c Command) int64 { return q.usage.replays.get(c) }
