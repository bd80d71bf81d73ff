package record

import (
	"encoding/binary"
	"sync/atomic"
)

// A SeenCache remembers which records this process saw lately, so that a repeat can look its
// record up without trying to write one first. An entry is a guess: it may be missing, or
// outlive its record.
type SeenCache [1 << 16]atomic.Uint64

func (h *SeenCache) slot(hash *[32]byte) (*atomic.Uint64, uint64) {
	return &h[binary.LittleEndian.Uint16(hash[:])], binary.LittleEndian.Uint64(hash[2:])
}

// Add notes the hash of a record's ID.
func (h *SeenCache) Add(hash *[32]byte) {
	slot, mark := h.slot(hash)
	slot.Store(mark)
}

// Has reports whether the hash was noted lately.
func (h *SeenCache) Has(hash *[32]byte) bool {
	slot, mark := h.slot(hash)
	return slot.Load() == mark
}

// MostRecent is how many bytes a record may have that a Recent remembers.
const MostRecent = 16 << 10

// A Recent caches the values that this process stored lately, by the hash of their ID, so that
// a settlement need not read a record first. A cached value may be outdated: a change must be
// stored only if the record is still the same.
type Recent[V any] [1 << 12]atomic.Pointer[recentRecord[V]]

type recentRecord[V any] struct {
	hash  [32]byte
	value *V
}

func (m *Recent[V]) slot(hash *[32]byte) *atomic.Pointer[recentRecord[V]] {
	return &m[binary.LittleEndian.Uint16(hash[2:])%uint16(len(m))]
}

// Add caches the value that is stored with a hash. If its size is more than MostRecent, Add
// removes the cached value instead.
func (m *Recent[V]) Add(hash *[32]byte, what *V, size int64) {
	if size > MostRecent {
		m.Remove(hash)
		return
	}
	m.slot(hash).Store(&recentRecord[V]{*hash, what})
}

// Find returns the cached value of a hash, or nil.
func (m *Recent[V]) Find(hash *[32]byte) *V {
	if r := m.slot(hash).Load(); r != nil && r.hash == *hash {
		return r.value
	}
	return nil
}

// Remove removes the cached value of a hash.
func (m *Recent[V]) Remove(hash *[32]byte) {
	slot := m.slot(hash)
	if r := slot.Load(); r != nil && r.hash == *hash {
		slot.CompareAndSwap(r, nil)
	}
}
