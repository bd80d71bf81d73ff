package integration

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// listIndexes are those that a claim and a settlement would not need.
var listIndexes = []string{"tenant", "operation", "result_ref", "unresolved"}

// BenchmarkListIndexes measures the cost of the indexes by which records are listed: the
// same claims and settlements, with a tenant of 100, an operation of 10 and a ref
// of its own each, with all of the indexes and without.
func BenchmarkListIndexes(b *testing.B) {
	for _, engine := range []struct {
		name string
		open func(b *testing.B) (s *sqlstore.Store, db *sql.DB, size func() int64)
		drop string
	}{
		{"PostgreSQL", func(b *testing.B) (*sqlstore.Store, *sql.DB, func() int64) {
			s, db := newPostgresSchema(b).open(b)
			return s, db, func() int64 { return number(b, db, "SELECT pg_total_relation_size('onlyonce_records')") }
		}, "DROP INDEX onlyonce_records_%s"},
		{"MySQL", func(b *testing.B) (*sqlstore.Store, *sql.DB, func() int64) {
			d := newMySQLDatabase(b)
			s, db := d.open(b)
			return s, db, func() int64 {
				return number(b, db, "SELECT SUM(file_size) FROM information_schema.innodb_sys_tablespaces WHERE name = '"+d.name+"/onlyonce_records'")
			}
		}, "ALTER TABLE onlyonce_records DROP KEY onlyonce_records_%s"},
		{"SQLite", func(b *testing.B) (*sqlstore.Store, *sql.DB, func() int64) {
			file := filepath.Join(b.TempDir(), "records.db")
			s, db := openSQLite(b, file)
			return s, db, func() int64 {
				if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
					b.Fatal(err)
				}
				info, err := os.Stat(file)
				if err != nil {
					b.Fatal(err)
				}
				return info.Size()
			}
		}, "DROP INDEX onlyonce_records_%s"},
	} {
		for _, callers := range []int{1, 256} {
			for _, with := range []string{"without", "with"} {
				b.Run(fmt.Sprintf("%s/%d/%s", engine.name, callers, with), func(b *testing.B) {
					s, db, size := engine.open(b)
					for _, index := range listIndexes {
						if with == "with" {
							break
						}
						if _, err := db.Exec(strings.Replace(engine.drop, "%s", index, 1)); err != nil {
							b.Fatal(err)
						}
					}
					before := size()
					b.ResetTimer()
					listed(b, s, callers)
					b.StopTimer()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
					b.ReportMetric(float64(size()-before)/float64(b.N), "bytes/record")
				})
			}
		}
	}
}

func number(b *testing.B, db *sql.DB, query string) (n int64) {
	if err := db.QueryRow(query).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// listed claims and settles b.N commands.
func listed(b *testing.B, s *sqlstore.Store, callers int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				id := onlyonce.ID{Tenant: fmt.Sprint("tenant-", i%100), Operation: fmt.Sprint("POST /v1/things/", i%10), Key: fmt.Sprint("key-", i)}
				r, err := s.Claim(b.Context(), onlyonce.Claim{ID: id, Owner: owner(), Fingerprint: fingerprint, Lease: time.Minute})
				if err == nil {
					err = s.Settle(b.Context(), onlyonce.Hold{ID: id, Owner: r.Owner, Fence: r.Fence}, onlyonce.Settlement{
						State: onlyonce.StateCompleted, Keep: time.Hour,
						Result: onlyonce.Result{Status: 201, Body: make([]byte, 500), Ref: fmt.Sprintf("ord_%020d", i)},
					})
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
