// Package memstore keeps records in the memory of one process. It is for tests,
// and for processes whose records may be lost when they end.
//
// Nothing survives the process: when it ends, for whatever reason, every record
// is gone and every command can run again. Each process has its own records, so
// two processes do not see each other's commands. While the process lives, the
// store follows every rule of onlyonce.Store. It never drops a record that has
// not expired: when it is full, it rejects new commands.
//
// Its clock is the process's monotonic clock, which is not affected by changes
// of the system time.
package memstore

import (
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// A Config limits the size of a Store. The zero Config is usable.
type Config struct {
	MaxRecords int   // default 1,000,000
	MaxBytes   int64 // approximate memory, including the overhead of each record; default 256 MiB
}

// A Store keeps records in memory. It copies its arguments. The slices and maps of the
// records that it returns belong to it and must not be modified.
//
// When one of its limits is reached, it rejects new commands with
// onlyonce.ErrUnavailable. Data of attempts that are already running is always
// stored, because those commands may have taken effect.
type Store struct {
	cfg   Config
	start time.Time // when the store's clock was 0
	seed  maphash.Seed

	records atomic.Int64
	bytes   atomic.Int64
	shards  [64]shard
}

var (
	_ onlyonce.Store    = (*Store)(nil)
	_ onlyonce.Purger   = (*Store)(nil)
	_ onlyonce.Resolver = (*Store)(nil)
	_ onlyonce.Lister   = (*Store)(nil)
)

// New returns an empty Store.
func New(cfg Config) *Store {
	cfg.MaxRecords = int(defaults.Positive("memstore: Config.MaxRecords", int64(cfg.MaxRecords), 1_000_000))
	cfg.MaxBytes = defaults.Positive("memstore: Config.MaxBytes", cfg.MaxBytes, 256<<20)
	return &Store{cfg: cfg, start: time.Now(), seed: maphash.MakeSeed()}
}

// lock locks the shard of id, and returns it and the hash under which it stores id.
func (s *Store) lock(id onlyonce.ID) (*shard, uint64) {
	hash := maphash.Comparable(s.seed, id)
	sh := &s.shards[hash%uint64(len(s.shards))]
	sh.mu.Lock()
	return sh, hash
}

// A moment is a reading of the store's clock, in nanoseconds since it started.
type moment int64

// never is the expiry time of a record that is kept forever. It is larger than
// any value the clock returns.
const never moment = math.MaxInt64

// after returns the moment d after m.
func (m moment) after(d time.Duration) moment {
	return m + min(moment(d), never-1-m)
}

func (s *Store) now() moment { return moment(time.Since(s.start)) }

// wall returns the time of day at m.
func (s *Store) wall(m moment) time.Time {
	return s.start.Add(time.Duration(m)).Round(0).UTC()
}
