package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// purgeBatch is how many records are deleted before a shard's lock is released.
const purgeBatch = 256

// Purge deletes at most limit records and results that have expired and returns how many
// it deleted.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("memstore: purge: %w", err)
	}
	return s.purge(limit), nil
}

func (s *Store) purge(limit int) int {
	purged := 0
	for i := range s.shards {
		for purged < limit {
			batch := min(limit-purged, purgeBatch)
			n := s.purgeShard(&s.shards[i], batch)
			purged += n
			if n < batch {
				break
			}
		}
	}
	return purged
}

// Unresolved counts the records whose outcome is unknown: those in the unknown
// state and those whose lease has lapsed. It also returns for how long the
// oldest of them has been unresolved. It looks at every record in the store.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return 0, 0, fmt.Errorf("memstore: count unresolved records: %w", err)
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		now := s.now()
		for _, e := range sh.byHash {
			for ; e != nil; e = e.next {
				if since, open := e.unresolved(now); open && !e.expired(now) {
					n, oldest = n+1, max(oldest, since)
				}
			}
		}
		sh.mu.Unlock()
	}
	return n, oldest, nil
}

func (s *Store) purgeShard(sh *shard, limit int) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.removeDue(sh, s.now(), limit)
}

// removeDue deletes at most limit expired records of a shard, and results that have expired
// before their records. The caller holds the shard's lock, as in every function below.
func (s *Store) removeDue(sh *shard, now moment, limit int) int {
	for n := range limit {
		e := sh.agenda.due(now)
		if e == nil {
			return n
		}
		if e.expired(now) {
			s.remove(sh, e)
			continue
		}
		e.forget()
		sh.agenda.set(e)
		s.weigh(e)
	}
	return limit
}

// add adds an entry for id, if there is room.
func (s *Store) add(sh *shard, id onlyonce.ID, hash uint64, now moment) (*entry, error) {
	s.removeDue(sh, now, 2) // so that expired records do not pile up if nobody purges
	if s.bytes.Load() >= s.cfg.MaxBytes {
		return nil, fmt.Errorf("full with %d bytes of records that have not expired: raise Config.MaxBytes, or keep records for less time", s.cfg.MaxBytes)
	}
	if s.records.Add(1) > int64(s.cfg.MaxRecords) {
		s.records.Add(-1)
		return nil, fmt.Errorf("full with %d records that have not expired: raise Config.MaxRecords, or keep records for less time", s.cfg.MaxRecords)
	}
	e := &entry{hash: hash, record: onlyonce.Record{ID: id, CreatedAt: s.wall(now)}}
	sh.put(e)
	return e, nil
}

// end settles an entry, or removes it when st is a release.
func (s *Store) end(sh *shard, e *entry, st onlyonce.Settlement, now moment) {
	if st.State == "" {
		s.remove(sh, e)
		return
	}
	e.end(st, now, s.wall(now))
	sh.agenda.set(e)
	s.weigh(e)
}

func (s *Store) remove(sh *shard, e *entry) {
	sh.remove(e)
	s.records.Add(-1)
	s.bytes.Add(-e.size)
}

// view returns the record of e in its present state. A header that was returned once is
// likely to be returned again, so it stays unpacked.
func (s *Store) view(e *entry, now moment) onlyonce.Record {
	if e.header != nil && !e.remembered(now) {
		e.record.Result.Header, e.header = unpack(e.header), nil
		s.weigh(e)
	}
	return e.stands(now)
}

// weigh updates the count of the memory of an entry.
func (s *Store) weigh(e *entry) {
	size := e.weigh()
	s.bytes.Add(size - e.size)
	e.size = size
}
