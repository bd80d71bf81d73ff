package httponce

import (
	"sync"

	"github.com/onlyonce-go/onlyonce/httponce/internal/fingerprint"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
)

// callBuffers are memory that requests use one after another. Nothing that a
// handler can reach refers to it once the handler has returned.
type callBuffers struct {
	text  []byte // what the fingerprint is of, and then the body
	body  []byte // the end of text
	print fingerprint.Scratch
	base  headerCopy // what was set before the handler ran
	sent  headerCopy // what the handler's answer began with
	call  call

	uses resources.Request
}

// largestKept is the longest buffer that is kept for the next request.
const largestKept = 64 << 10

var buffersPool = sync.Pool{New: func() any { return new(callBuffers) }}

func takeBuffers() *callBuffers { return buffersPool.Get().(*callBuffers) }

func (s *callBuffers) giveBack() {
	s.drop()
	s.print.Clear()
	s.base.clear()
	s.sent.clear()
	s.call = call{}
	s.uses.Forget()
	buffersPool.Put(s)
}

// drop gives up the text, and the memory of a long one.
func (s *callBuffers) drop() {
	if s.body = nil; cap(s.text) > largestKept {
		s.text = nil
	}
	s.text = s.text[:0]
}
