package integration

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A closingStore is a store that purges by itself.
type closingStore interface {
	onlyonce.Store
	Close() error
}

// onPurging runs a test on each kind of store that purges in the background. open opens one
// more store on the test's database db.
func onPurging(t *testing.T, test func(t *testing.T, db *sql.DB, open func(every time.Duration, o onlyonce.Observer) closingStore)) {
	inSQL := func(t *testing.T, newPool func() *sql.DB) {
		db := newPool()
		if err := sqlstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		test(t, db, func(every time.Duration, o onlyonce.Observer) closingStore {
			s, err := sqlstore.Open(t.Context(), newPool(), sqlstore.Config{PurgeEvery: every, Observer: o})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "records.db")
		inSQL(t, func() *sql.DB { return openSQLiteDB(t, file) })
	})
	t.Run("mysql", func(t *testing.T) {
		d := newMySQLDatabase(t)
		inSQL(t, func() *sql.DB { return openPool(t, "mysql", d.config(t).FormatDSN()) })
	})
	t.Run("postgres", func(t *testing.T) {
		schema := newPostgresSchema(t)
		inSQL(t, func() *sql.DB { return schema.pool(t) })
	})
	t.Run("pgxstore", func(t *testing.T) {
		schema := newPostgresSchema(t)
		_, db := schema.open(t)
		test(t, db, func(every time.Duration, o onlyonce.Observer) closingStore {
			pool, err := pgxpool.New(t.Context(), schema.with(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			s, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{PurgeEvery: every, Observer: o})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		})
	})
}

// settleExpiring settles commands whose records expire at once.
func settleExpiring(t *testing.T, s onlyonce.Store, n int) {
	t.Helper()
	for i := range n {
		r, err := s.Claim(t.Context(), serverClaim(fmt.Sprint("k", i)))
		if err == nil {
			err = s.Settle(t.Context(), holdOf(r), onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Millisecond})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestBackgroundPurge_SeveralStoresOnOneDatabaseDeleteEachExpiredRecordOnce(t *testing.T) {
	onPurging(t, func(t *testing.T, db *sql.DB, open func(time.Duration, onlyonce.Observer) closingStore) {
		const records = 60
		s := open(sqlstore.NeverPurge, nil)
		settleExpiring(t, s, records)
		r, err := s.Claim(t.Context(), serverClaim("kept"))
		if err == nil {
			err = s.Settle(t.Context(), holdOf(r), onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour})
		}
		if err != nil {
			t.Fatal(err)
		}
		var deleted atomic.Int64
		for range 3 {
			open(time.Millisecond, func(_ context.Context, e onlyonce.Event) {
				if e.Outcome != onlyonce.OutcomePurged || e.Err != nil {
					t.Errorf("%+v", e)
				}
				deleted.Add(int64(e.Purged))
			})
		}
		eventually(t, "only the record that is kept is left", func() bool {
			var left int
			if err := db.QueryRow("SELECT count(*) FROM onlyonce_records").Scan(&left); err != nil {
				t.Fatal(err)
			}
			return left <= 1 && deleted.Load() >= records
		})
		if n := deleted.Load(); n != records {
			t.Errorf("%d were deleted", n)
		}
		if _, err := s.Lookup(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestBackgroundPurge_AFailureIsReportedAndTheNextPurgeTriesAgain(t *testing.T) {
	onPurging(t, func(t *testing.T, db *sql.DB, open func(time.Duration, onlyonce.Observer) closingStore) {
		var mu sync.Mutex
		var last error
		failed := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return last != nil && strings.Contains(last.Error(), "onlyonce_records")
		}
		s := open(time.Millisecond, func(_ context.Context, e onlyonce.Event) {
			mu.Lock()
			defer mu.Unlock()
			last = e.Err
		})
		for _, rename := range []string{"onlyonce_records RENAME TO elsewhere", "elsewhere RENAME TO onlyonce_records"} {
			if _, err := db.Exec("ALTER TABLE " + rename); err != nil {
				t.Fatal(err)
			}
			eventually(t, "purges fail only without the table", func() bool { return failed() == strings.HasPrefix(rename, "onlyonce_records") })
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestBackgroundPurge_CloseEndsIt(t *testing.T) {
	onPurging(t, func(t *testing.T, _ *sql.DB, open func(time.Duration, onlyonce.Observer) closingStore) {
		for range 10 { // a purge may be in progress or not
			purges, closed := make(chan struct{}, 1), atomic.Bool{}
			s := open(time.Nanosecond, func(_ context.Context, e onlyonce.Event) {
				if closed.Load() || e.Err != nil {
					t.Errorf("closed %t: %+v", closed.Load(), e)
				}
				select {
				case purges <- struct{}{}:
				default:
				}
			})
			<-purges
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			closed.Store(true)
		}
	})
}
