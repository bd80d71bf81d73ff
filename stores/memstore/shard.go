package memstore

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// A shard is the part of a store's records that share one lock.
type shard struct {
	mu     sync.Mutex
	byID   map[onlyonce.ID]*entry
	agenda agenda // the settled records that will expire
	fence  int64  // the last one given, to any record
	most   int    // how many records there were since byID was made
	_      [64 - 7*8]byte
}

// smallMap is the size from which a map's memory is worth giving back.
const smallMap = 1024

// get returns the entry of id if it is there and has not expired.
func (sh *shard) get(id onlyonce.ID, now moment) *entry {
	if e := sh.byID[id]; e != nil && !e.expired(now) {
		return e
	}
	return nil
}

// put adds an entry.
func (sh *shard) put(e *entry) {
	if sh.byID == nil {
		sh.byID = make(map[onlyonce.ID]*entry)
	}
	sh.byID[e.record.ID] = e
	sh.most = max(sh.most, len(sh.byID))
}

// remove deletes an entry, and gives memory back when most of it is unused: a
// map alone never shrinks.
func (sh *shard) remove(e *entry) {
	sh.agenda.remove(e)
	delete(sh.byID, e.record.ID)
	if sh.most > smallMap && len(sh.byID) < sh.most/4 {
		byID := make(map[onlyonce.ID]*entry, len(sh.byID))
		for id, e := range sh.byID {
			byID[id] = e
		}
		sh.byID, sh.most = byID, len(byID)
		sh.agenda = append(make(agenda, 0, len(sh.agenda)), sh.agenda...)
	}
}

// nextFence returns a fence that is higher than every earlier one of the shard,
// and than the clock in microseconds.
func (sh *shard) nextFence(micros int64) int64 {
	sh.fence = max(sh.fence+1, micros)
	return sh.fence
}

// held returns the entry of h's record if h is its hold, or was when it was
// settled.
func (sh *shard) held(h onlyonce.Hold, now moment) *entry {
	e := sh.get(h.ID, now)
	if e == nil || e.record.Owner != h.Owner || e.record.Fence != h.Fence {
		return nil
	}
	return e
}
