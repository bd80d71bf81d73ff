package sqlstore

import (
	"encoding/binary"
	"sync/atomic"
)

// hints remember which records this process saw lately, so that a repeat can
// be answered without the write lock. They are a guess: one may be missing, or
// outlive its record.
type hints [1 << 16]atomic.Uint64

func (h *hints) slot(hash *[32]byte) (*atomic.Uint64, uint64) {
	return &h[binary.LittleEndian.Uint16(hash[:])], binary.LittleEndian.Uint64(hash[2:])
}

func (h *hints) add(hash *[32]byte) {
	slot, mark := h.slot(hash)
	slot.Store(mark)
}

func (h *hints) has(hash *[32]byte) bool {
	slot, mark := h.slot(hash)
	return slot.Load() == mark
}
