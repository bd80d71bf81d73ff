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
	in      []byte
	out     []byte   // has room for what is left of in, and 8 bytes
	members []member // of the objects that are open
	names   []byte   // of members that are not plain
	spare   []byte
	choices []choice
	chosen  []byte
	parts   [][]byte
	work    int // bytes compared and moved to put members in order
}

var writers = sync.Pool{New: func() any { return new(Writer) }}

// NewWriter returns a Writer, which may have the buffers of one that was released.
func NewWriter() *Writer { return writers.Get().(*Writer) }

// Release gives the buffers back for the next document, unless they are large,
// and lets go of everything that is the caller's.
func (w *Writer) Release() {
	w.in = nil
	clear(w.choices)
	clear(w.parts)
	if cap(w.out)+cap(w.names)+cap(w.spare)+cap(w.chosen)+32*cap(w.members) <= maxPooled {
		writers.Put(w)
	}
}

func fault(what string, at int) error {
	return fmt.Errorf("onlyonce: canonical JSON: %s at byte %d", what, at)
}

// put writes one byte, for which there is room.
func (w *Writer) put(b byte) {
	n := len(w.out)
	w.out = w.out[:n+1]
	w.out[n] = b
}

// blank returns where the white space at i ends.
func (w *Writer) blank(i int) int {
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
