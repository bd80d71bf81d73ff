package canonical

import (
	"fmt"
	"sync"
)

const maxPooled = 1 << 20 // bytes of buffers that are kept for the next document

// A Writer writes JSON documents in canonical form, one after the other. It takes
// time in proportion to a document's length, times the logarithm of the members of
// an object that are out of order, times the levels of such objects.
type Writer struct {
	in          []byte
	out         []byte   // has capacity for the rest of in, and 8 bytes more
	members     []member // of the objects that are open
	names       []byte   // in sortable form, of members that are not plain
	spare       []byte
	selections  []selection
	chosen      []byte
	parts       [][]byte
	sortedBytes int // bytes compared and moved to sort members
}

var writers = sync.Pool{New: func() any { return new(Writer) }}

// NewWriter returns a Writer, which may reuse the buffers of a released Writer.
func NewWriter() *Writer { return writers.Get().(*Writer) }

// Release returns the buffers to a pool, unless they are large, and drops all
// references to the caller's data.
func (w *Writer) Release() {
	w.in = nil
	clear(w.selections)
	clear(w.parts)
	if cap(w.out)+cap(w.names)+cap(w.spare)+cap(w.chosen)+32*cap(w.members) <= maxPooled {
		writers.Put(w)
	}
}

func fault(what string, at int) error {
	return fmt.Errorf("onlyonce: canonical JSON: %s at byte %d", what, at)
}

// writeByte writes one byte. The caller has made sure that there is capacity for it.
func (w *Writer) writeByte(b byte) {
	n := len(w.out)
	w.out = w.out[:n+1]
	w.out[n] = b
}

// skipSpace returns where the white space at i ends.
func (w *Writer) skipSpace(i int) int {
	for i < len(w.in) && w.in[i] <= ' ' && (w.in[i] == ' ' || w.in[i] == '\n' || w.in[i] == '\r' || w.in[i] == '\t') {
		i++
	}
	return i
}

// peek returns the byte at i, or 0 at the end of the document.
func (w *Writer) peek(i int) byte {
	if i < len(w.in) {
		return w.in[i]
	}
	return 0
}
