package httponce

import (
	"crypto/sha256"
	"hash"
	"sync"
)

// A scratch is the memory that requests use one after another. Nothing that a
// handler can reach refers to it once the handler has returned.
type scratch struct {
	body  []byte
	head  []byte
	query []string
	hash  hash.Hash
	base  headerCopy // what was set before the handler ran
	sent  headerCopy // what the handler's answer began with
	sum   [sha256.Size]byte
	call  call
}

// largestKept is the longest buffer that is kept for the next request.
const largestKept = 64 << 10

var scratches = sync.Pool{New: func() any { return &scratch{hash: sha256.New()} }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

func (s *scratch) giveBack() {
	if cap(s.body) > largestKept {
		s.body = nil
	}
	if cap(s.head) > largestKept {
		s.head = nil
	}
	clear(s.query)
	s.call = call{}
	s.base.clear()
	s.sent.clear()
	scratches.Put(s)
}
