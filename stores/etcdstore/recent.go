package etcdstore

import (
	"encoding/binary"
	"sync/atomic"
)

// recent remembers the records that this process has claimed or renewed lately, so that a
// settlement need not read one first. A change is stored only if the record is still the
// same.
type recent [1 << 12]atomic.Pointer[recentRecord]

type recentRecord struct {
	hash [32]byte
	*stored
}

// mostRecent is how many bytes of steps a remembered record may have.
const mostRecent = 16 << 10

func (m *recent) slot(hash *[32]byte) *atomic.Pointer[recentRecord] {
	return &m[binary.LittleEndian.Uint16(hash[2:])%uint16(len(m))]
}

func (m *recent) add(hash *[32]byte, v *stored) {
	if v.head.size() > mostRecent {
		m.remove(hash)
		return
	}
	m.slot(hash).Store(&recentRecord{*hash, v})
}

// find returns the record of a hash, or nil.
func (m *recent) find(hash *[32]byte) *stored {
	if r := m.slot(hash).Load(); r != nil && r.hash == *hash {
		return r.stored
	}
	return nil
}

func (m *recent) remove(hash *[32]byte) {
	slot := m.slot(hash)
	if r := slot.Load(); r != nil && r.hash == *hash {
		slot.CompareAndSwap(r, nil)
	}
}
