package integration

import (
	"context"
	"flag"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

var expiredFlag = flag.Int("expired", 1_000_000, "expired records that BenchmarkPurge deletes")

// BenchmarkPurge deletes expired records, as a store does in the background, while 64 callers
// run 1,300 new commands per second. It reports the 99th percentile of their latencies in the ten
// seconds before the purge, when the expired records are already there, and during the purge.
func BenchmarkPurge(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) {
		for b.Loop() {
			schema := newPostgresSchema(b)
			_, db := schema.open(b)
			if _, err := db.Exec(fillPostgres, *expiredFlag, -1); err != nil {
				b.Fatal(err)
			}
			if _, err := db.Exec("VACUUM ANALYZE onlyonce_records"); err != nil {
				b.Fatal(err)
			}
			purgeUnderLoad(b, func(every time.Duration, o onlyonce.Observer) (closingStore, error) {
				pool, err := pgxpool.New(b.Context(), schema.with(b))
				if err != nil {
					return nil, err
				}
				b.Cleanup(pool.Close)
				return pgxstore.Open(b.Context(), pool, pgxstore.Config{PurgeEvery: every, Observer: o})
			})
		}
	})
	b.Run("SQLite", func(b *testing.B) {
		for b.Loop() {
			file := filepath.Join(b.TempDir(), "bench.db")
			_, _ = openSQLite(b, file) // creates the tables
			one := openSQLiteDB(b, file)
			one.SetMaxOpenConns(1)
			addSQLite(b, one, loadSQLite, *expiredFlag, -1)
			purgeUnderLoad(b, func(every time.Duration, o onlyonce.Observer) (closingStore, error) {
				return sqlstore.Open(b.Context(), openSQLiteDB(b, file), sqlstore.Config{PurgeEvery: every, Observer: o})
			})
		}
	})
}

func purgeUnderLoad(b *testing.B, open func(every time.Duration, o onlyonce.Observer) (closingStore, error)) {
	b.Helper()
	run := func(load paced, every time.Duration, o onlyonce.Observer) []sample {
		s, err := open(every, o)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		all := load.run(b, func(ctx context.Context) error { return claimAndSettle(ctx, s) })
		return slices.DeleteFunc(all, func(s sample) bool { return s.due < 2*time.Second }) // opened the connections
	}
	load := paced{perSecond: 1300, callers: 64, lasts: 12 * time.Second}
	alone := run(load, sqlstore.NeverPurge, nil)
	purged := make(chan struct{})
	var once sync.Once
	load.lasts, load.done = 10*time.Minute, purged
	began := time.Now()
	during := run(load, time.Second, func(_ context.Context, e onlyonce.Event) {
		once.Do(func() {
			if e.Err != nil || e.Purged != *expiredFlag {
				b.Errorf("purged %d of %d records, error %v", e.Purged, *expiredFlag, e.Err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "purge-s")
			close(purged)
		})
	})
	b.ReportMetric(percentile(99, alone), "alone-p99-ms")
	b.ReportMetric(percentile(99, during), "purging-p99-ms")
	b.ReportMetric(percentile(50, alone), "alone-p50-ms")
	b.ReportMetric(percentile(50, during), "purging-p50-ms")
}
