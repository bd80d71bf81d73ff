package integration

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// large is a result that takes more than a page.
var large = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: make([]byte, 5000)}}

// work runs functions and settles claims from many callers, a bounded number,
// and reports how each ended.
func (p place) work(name string, callers, each int, ended func(key string, err error)) {
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				key := fmt.Sprint(name, " ", caller, " ", i)
				c := claimOf(key)
				if i%2 == 0 {
					_, err := p.store.RunTx(p.Context(), c, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
						return large, p.Insert(ctx, tx, key)
					})
					ended(key, err)
					continue
				}
				r, err := p.store.Claim(p.Context(), c)
				if err == nil {
					h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
					err = p.store.SettleTx(p.Context(), h, func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) {
						return large, p.Insert(ctx, tx, key)
					})
				}
				ended(key, err)
			}
		})
	}
	all.Wait()
}

// whole wants a row exactly if the command is completed, and both if its caller
// was told so.
func (p place) whole(key string, answered bool) {
	p.Helper()
	rows, err := p.Count(p.Context(), key)
	if err != nil {
		p.Fatal(err)
	}
	r, _ := p.store.Lookup(p.Context(), claimOf(key).ID)
	if done := r.State == onlyonce.StateCompleted; rows > 1 || done != (rows == 1) || answered && !done {
		p.Errorf("%s: answered %v, but there are %d rows, and the record is %q", key, answered, rows, r.State)
	}
}

func TestSQLite_ThatIsFullAtAnyPageHalvesNothing(t *testing.T) {
	needs.Time(t)
	for pages := 16; pages < 60; pages++ {
		file := filepath.Join(t.TempDir(), fmt.Sprint(pages, ".db"))
		p := newPlaceIn(t, file)
		full := p
		full.db = pool(t, sqliteDSN(file)+fmt.Sprintf("&_pragma=max_page_count(%d)", pages))
		s, err := sqlstore.Open(t.Context(), full.db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
		if err != nil {
			t.Fatal(err)
		}
		full.store = s
		var mu sync.Mutex
		results := make(map[string]error)
		full.work("w", 8, 6, func(key string, err error) {
			mu.Lock()
			defer mu.Unlock()
			results[key] = err
		})
		failed := 0
		for key, err := range results {
			p.whole(key, err == nil)
			if err != nil {
				failed++
			}
			if err != nil && !strings.Contains(err.Error(), "full") {
				t.Errorf("%d pages, %s: %v", pages, key, err)
			}
		}
		if failed == 0 {
			t.Errorf("%d pages were enough: nothing is tested", pages)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		p.sound()
	}
}

func TestSQLite_ASettlementThatDoesNotFitDoesNotHarmItsNeighbours(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	newPlaceIn(t, file)
	p := place{T: t, db: pool(t, sqliteDSN(file)+"&_pragma=max_page_count(100)")}
	var err error
	if p.store, err = sqlstore.Open(t.Context(), p.db, sqlstore.Config{}); err != nil {
		t.Fatal(err)
	}
	defer p.store.Close()
	var calls []func()
	for i := range 9 {
		key := fmt.Sprint(i)
		r := p.claims(claimOf(key))
		s := completed
		if i == 4 {
			s.Result.Body = make([]byte, 1<<20)
		}
		calls = append(calls, func() {
			err := p.store.Settle(t.Context(), onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}, s)
			if (err != nil) != (i == 4) {
				t.Errorf("settlement %d: %v", i, err)
			}
		})
	}
	p.inOrder(calls...)
	for i := range 9 {
		r, err := p.store.Lookup(t.Context(), claimOf(fmt.Sprint(i)).ID)
		if err != nil || (r.State == onlyonce.StateCompleted) != (i != 4) {
			t.Errorf("record %d is %s, %v", i, r.State, err)
		}
	}
}

// sound wants the file to be in order and the store to work.
func (p place) sound() {
	p.Helper()
	var verdict string
	if err := p.db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		p.Errorf("the file: %s %v", verdict, err)
	}
	p.work("after", 2, 4, func(key string, err error) {
		if err != nil {
			p.Errorf("%s: %v", key, err)
		}
	})
}

func init() { childJobs["fail to write"] = failToWrite }

// failToWrite works while the system lets no file grow, which fails
// in the middle of a commit.
func failToWrite(t *testing.T, file string) {
	p := newPlaceIn(t, file)
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	for round := range 10 {
		log, err := os.Stat(file + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		limit := was
		limit.Cur = uint64(log.Size()) + uint64(round)*30_001
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		p.work(fmt.Sprint("round ", round), 8, 4, func(key string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				say("failed " + key)
			} else {
				say("answered " + key)
			}
		})
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
		p.work(fmt.Sprint("between ", round), 2, 4, func(key string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", key, err)
			}
			say("answered " + key)
		})
	}
	say("done")
}

func TestSQLite_ThatFailsToWriteInACommitHalvesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records.db")
	p := newPlaceIn(t, file)
	c := startChild(t, "fail to write", file)
	counts := make(map[string]int)
	for {
		said, ok := c.hear()
		if !ok || said == "done" {
			break
		}
		how, key, _ := strings.Cut(said, " ")
		counts[how]++
		p.whole(key, how == "answered")
	}
	c.ends()
	if counts["failed"] == 0 || counts["answered"] == 0 {
		t.Errorf("%v: nothing is tested\n%s", counts, &c.noise)
	}
	t.Logf("%v", counts)
	p.sound()
}

func TestSQLite_ALostWriterConnectionIsReplaced(t *testing.T) {
	p := newPlace(t)
	p.db.SetConnMaxLifetime(time.Nanosecond)
	for i := range 20 {
		key := fmt.Sprint(i)
		errs := p.atOnce(map[string]txFunc{
			key: p.inserts(key),
			"bad " + key: func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return onlyonce.Settlement{}, tx.Rollback() // which costs the connection
			},
		})
		if errs[key] != nil {
			t.Errorf("%s: %v", key, errs[key])
		}
		p.wants(key, 1, onlyonce.StateCompleted)
	}
}
