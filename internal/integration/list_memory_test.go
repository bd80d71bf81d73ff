package integration

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// inUse returns how many bytes of memory are in use. The first of the two collections only marks
// what sync.Pools hold, such as the buffers of a driver, and the second frees it.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestList_AListHoldsFewLargeRecordsAtATime(t *testing.T) {
	needs.Time(t)
	const size, records = 4 << 20, 24
	type store interface {
		onlyonce.Store
		onlyonce.Lister
	}
	for name, open := range map[string]func(t *testing.T) store{
		"PostgreSQL": func(t *testing.T) store { s, _ := newPostgresSchema(t).open(t); return s },
		"MySQL":      func(t *testing.T) store { s, _ := newMySQLDatabase(t).open(t); return s },
		"SQLite":     func(t *testing.T) store { s, _ := newSQLite(t); return s },
		"pgxstore": func(t *testing.T) store {
			schema := newPostgresSchema(t)
			schema.open(t) // makes the tables
			return openPgxstore(t, schema.with(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			large := done("made")
			large.Result.Body = make([]byte, size)
			for n := range records {
				c := serverClaim(fmt.Sprint(n))
				r, err := s.Claim(t.Context(), c)
				if err == nil {
					err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, large)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			before, n := inUse(), 0
			for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
				if err != nil || len(r.Result.Body) != size {
					t.Fatalf("record %d has %d bytes, error %v", n, len(r.Result.Body), err)
				}
				if n++; n == 1 {
					if took := inUse() - before; took > records*size/2 {
						t.Errorf("the list takes %d MiB for its first record, of 4 MiB", took>>20)
					}
				}
			}
			if n != records {
				t.Errorf("%d records were listed, want %d", n, records)
			}
		})
	}
}
