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
