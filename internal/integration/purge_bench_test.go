package integration

import (
	"context"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
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
			cfg, err := pgxpool.ParseConfig(schema.with(b))
			if err != nil {
				b.Fatal(err)
			}
			purgeUnderLoad(b, openPgxstoreWith(b, cfg))
		}
	})
	b.Run("SQLite", func(b *testing.B) {
		for b.Loop() {
			file := filepath.Join(b.TempDir(), "bench.db")
			s, _ := openSQLite(b, file)
			one := openSQLiteDB(b, file)
			one.SetMaxOpenConns(1)
			addSQLite(b, one, loadSQLite, *expiredFlag, -1)
			purgeUnderLoad(b, s)
		}
	})
}

func purgeUnderLoad(b *testing.B, s onlyonce.Store) {
	b.Helper()
	work := func(ctx context.Context) error { return claimAndSettle(ctx, s) }
	load := paced{perSecond: 1300, callers: 64, lasts: 2 * time.Second}
	load.run(b, work) // opens the connections
	load.lasts = 10 * time.Second
	alone := load.run(b, work)
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		n, err := onlyonce.New(s, onlyonce.Config{}).Purge(b.Context())
		if err != nil || n != *expiredFlag {
			b.Errorf("purged %d of %d records, error %v", n, *expiredFlag, err)
		}
	}()
	load.lasts, load.done = 10*time.Minute, done
	during := load.run(b, work)
	<-done
	b.ReportMetric(time.Since(began).Seconds(), "purge-s")
	b.ReportMetric(percentile(99, alone), "alone-p99-ms")
	b.ReportMetric(percentile(99, during), "purging-p99-ms")
	b.ReportMetric(percentile(50, alone), "alone-p50-ms")
	b.ReportMetric(percentile(50, during), "purging-p50-ms")
}
