package integration

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

var rememberedFlag = flag.Int("remembered", 100_000, "records of which only the ID is left, among which BenchmarkRemembered claims")

// rememberPostgres adds n records of which only the ID is left.
const rememberPostgres = `INSERT INTO onlyonce_records (id, tenant, operation, idem_key, state, owner, attempt, created_at, fence, lease_until, settled_at, expires_at)
SELECT sha256(int8send(n)), 'tenant ' || (n % 300), 'POST /v1/orders', gen_random_uuid(), 'remembered', substring(sha256(int8send(-n)) for 16), 1, n, n, 0, n, onlyonce_now() + 2592000000000
FROM generate_series(1, $1::bigint) n`

// loadExpiredSQLite adds completed commands of as many IDs, whose results of 500 bytes have expired. A purge
// leaves the IDs. It is run as the statements of addSQLite.
const loadExpiredSQLite = `INSERT INTO onlyonce_records (created_at, id, tenant, operation, idem_key, state, owner, attempt, fence, lease_until, settled_at, expires_at, fingerprint, status_code, response_header, response_body)
SELECT 1764000000000000 + value, randomblob(32), 'tenant ' || (value % 300), 'POST /v1/orders', lower(hex(randomblob(18))), 'completed', randomblob(16), 1, 1764000000000000 + value, 0, 1764000000000000 + value, ? + value,
       randomblob(32), 201, '{":keep":["1"],"Content-Type":["application/json"]}', zeroblob(500) FROM series`

// BenchmarkRemembered claims new commands by turns in a store that is empty at first and in one
// that remembers the IDs of many commands. It reports how many bytes a remembered ID takes, and
// how many times as long a claim takes among them. Space that new records use again does not count.
func BenchmarkRemembered(b *testing.B) {
	b.Run("PostgreSQL", func(b *testing.B) {
		var stores [2]onlyonce.Store
		var bytes int64
		for i, n := range []int{0, *rememberedFlag} {
			schema := newPostgresSchema(b)
			_, db := schema.open(b)
			empty := number(b, db, "SELECT pg_total_relation_size('onlyonce_records')")
			if _, err := db.Exec(rememberPostgres, n); err != nil {
				b.Fatal(err)
			}
			if _, err := db.Exec("VACUUM ANALYZE onlyonce_records"); err != nil {
				b.Fatal(err)
			}
			if n > 0 {
				bytes = number(b, db, "SELECT pg_total_relation_size('onlyonce_records')") - empty
			}
			pool, err := pgxpool.New(b.Context(), schema.with(b))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(pool.Close)
			s, err := pgxstore.Open(b.Context(), pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Close() })
			stores[i] = s
		}
		claimByTurns(b, stores)
		b.ReportMetric(float64(bytes)/float64(max(*rememberedFlag, 1)), "bytes/ID")
	})
	b.Run("SQLite", func(b *testing.B) {
		var stores [2]onlyonce.Store
		var bytes int64
		for i, n := range []int{0, *rememberedFlag} {
			file := filepath.Join(b.TempDir(), "bench.db")
			_, _ = openSQLite(b, file) // creates the tables
			one := openSQLiteDB(b, file)
			one.SetMaxOpenConns(1)
			used := func() int64 {
				return number(b, one, "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size")
			}
			s, err := sqlstore.Open(b.Context(), openSQLiteDB(b, file), sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { s.Close() })
			stores[i] = s
			if empty := used(); n > 0 {
				addSQLite(b, one, loadExpiredSQLite, n, 4e15)
				began := time.Now()
				for forgotten := 0; forgotten < n; {
					purged, err := s.Purge(b.Context(), 1000)
					if forgotten += purged; err != nil {
						b.Fatal(err)
					}
				}
				b.Logf("the purge took %v for %d results", time.Since(began), n)
				bytes = used() - empty
			}
		}
		claimByTurns(b, stores)
		b.ReportMetric(float64(bytes)/float64(max(*rememberedFlag, 1)), "bytes/ID")
	})
}

// claimByTurns claims b.N new commands in each of the stores, and reports how many times as long
// that took in the second.
func claimByTurns(b *testing.B, stores [2]onlyonce.Store) {
	b.Helper()
	var took [2]time.Duration
	b.ResetTimer()
	for n := range b.N {
		for _, i := range [...]int{n % 2, 1 - n%2} {
			c := onlyonce.Claim{ID: nextID(), Owner: owner(), Fingerprint: fingerprint, Lease: time.Hour}
			began := time.Now()
			r, err := stores[i].Claim(b.Context(), c)
			took[i] += time.Since(began)
			if err != nil || r.Owner != c.Owner {
				b.Fatalf("the claim got the state %q and the error %v", r.State, err)
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(took[1])/float64(took[0]), "times-as-long")
	b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "µs/claim")
}
