package memstore

import (
	"maps"
	"slices"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// A shard is the part of a store's records that share one lock.
type shard struct {
	mu     sync.Mutex
	byHash map[uint64]*entry // entries with the same hash are chained
	agenda agenda            // the records that will expire, or whose results will, unless they are renewed or settled
	fence  int64             // the last fence that was issued to a record of the shard
	most   int               // the largest size of byHash since it was created
	_      [64 - 7*8]byte    // each shard has its own cache line
}

// find returns the entry of id, or nil.
func (sh *shard) find(id onlyonce.ID, hash uint64) *entry {
	e := sh.byHash[hash]
	for e != nil && e.record.ID != id {
		e = e.next
	}
	return e
}

// get returns the entry of id if there is one that has not expired, and otherwise nil.
func (sh *shard) get(id onlyonce.ID, hash uint64, now moment) *entry {
	if e := sh.find(id, hash); e != nil && !e.expired(now) {
		return e
	}
	return nil
}

// held returns the entry of h's record if h holds it, or held it when it was settled.
func (sh *shard) held(h onlyonce.Hold, hash uint64, now moment) *entry {
	e := sh.get(h.ID, hash, now)
	if e == nil || e.record.Owner != h.Owner || e.record.Fence != h.Fence {
		return nil
	}
	return e
}

// put adds an entry.
func (sh *shard) put(e *entry) {
	if sh.byHash == nil {
		sh.byHash = make(map[uint64]*entry)
	}
	e.next = sh.byHash[e.hash]
	sh.byHash[e.hash] = e
	sh.most = max(sh.most, len(sh.byHash))
}

// remove deletes an entry.
func (sh *shard) remove(e *entry) {
	sh.agenda.remove(e)
	switch first := sh.byHash[e.hash]; {
	case first != e:
		for first.next != e {
			first = first.next
		}
		first.next = e.next
	case e.next != nil:
		sh.byHash[e.hash] = e.next
	default:
		delete(sh.byHash, e.hash)
		sh.shrink()
	}
}

// smallMap is the size from which it is worth releasing a map's memory.
const smallMap = 1024

// shrink releases memory when most of it is unused, which a map never does by itself.
func (sh *shard) shrink() {
	if sh.most < smallMap || len(sh.byHash) > sh.most/4 {
		return
	}
	byHash := make(map[uint64]*entry, len(sh.byHash))
	maps.Copy(byHash, sh.byHash)
	sh.byHash, sh.most = byHash, len(byHash)
	sh.agenda = slices.Clone(sh.agenda)
}

// nextFence returns a fence that is higher than every earlier one of the shard,
// and than the clock in microseconds.
func (sh *shard) nextFence(micros int64) int64 {
	sh.fence = max(sh.fence+1, micros)
	return sh.fence
}
