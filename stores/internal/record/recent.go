package record

import (
	"encoding/binary"
	"sync/atomic"
)

// Hints remember which records this process saw lately, so that a repeat can look its
// record up without trying to write one first. A hint is a guess: it may be missing, or
// outlive its record.
type Hints [1 << 16]atomic.Uint64

func (h *Hints) slot(hash *[32]byte) (*atomic.Uint64, uint64) {
	return &h[binary.LittleEndian.Uint16(hash[:])], binary.LittleEndian.Uint64(hash[2:])
}

// Add notes the hash of a record's ID.
func (h *Hints) Add(hash *[32]byte) {
	slot, mark := h.slot(hash)
	slot.Store(mark)
}

// Has reports whether the hash was noted lately.
func (h *Hints) Has(hash *[32]byte) bool {
	slot, mark := h.slot(hash)
	return slot.Load() == mark
}

// MostRecent is how many bytes a record may have that a Recent remembers.
const MostRecent = 16 << 10

// A Recent remembers what this process has stored lately, by the hash of its ID, so that a
// settlement need not read a record first. What it remembers is a guess: a change must be
// stored only if the record is still the same.
type Recent[V any] [1 << 12]atomic.Pointer[recentRecord[V]]

type recentRecord[V any] struct {
	hash [32]byte
	what *V
}

func (m *Recent[V]) slot(hash *[32]byte) *atomic.Pointer[recentRecord[V]] {
	return &m[binary.LittleEndian.Uint16(hash[2:])%uint16(len(m))]
}

// Add remembers what is stored with a hash. It forgets it instead if its size is more than
// MostRecent.
func (m *Recent[V]) Add(hash *[32]byte, what *V, size int64) {
	if size > MostRecent {
		m.Remove(hash)
		return
	}
	m.slot(hash).Store(&recentRecord[V]{*hash, what})
}

// Find returns what is stored with a hash, or nil.
func (m *Recent[V]) Find(hash *[32]byte) *V {
	if r := m.slot(hash).Load(); r != nil && r.hash == *hash {
		return r.what
	}
	return nil
}

// Remove forgets what is stored with a hash.
func (m *Recent[V]) Remove(hash *[32]byte) {
	slot := m.slot(hash)
	if r := slot.Load(); r != nil && r.hash == *hash {
		slot.CompareAndSwap(r, nil)
	}
}
