package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A competent hand-written implementation: one row at a time, each
// statement prepared and committed by itself, on a single connection.
const (
	naiveTable = `
CREATE TABLE naive_records (
  n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, tenant TEXT NOT NULL, operation TEXT NOT NULL, idem_key TEXT NOT NULL, fingerprint BLOB,
  state TEXT NOT NULL, owner BLOB NOT NULL, attempt INTEGER NOT NULL, fence INTEGER NOT NULL, lease_until INTEGER NOT NULL,
  created_at INTEGER NOT NULL, settled_at INTEGER, expires_at INTEGER, status_code INTEGER, response_header TEXT, response_body BLOB) STRICT;
CREATE INDEX naive_records_expires_at ON naive_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE business (n INTEGER PRIMARY KEY, caller TEXT NOT NULL, amount INTEGER NOT NULL) STRICT;`
	naiveClaim = `
INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at)
VALUES (?, ?, ?, ?, ?, 'processing', ?, 1, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	naiveSettle = `
UPDATE naive_records SET state = 'completed', status_code = ?, response_header = ?, response_body = ?, settled_at = ?, expires_at = ?
WHERE id = ? AND owner = ? AND state = 'processing'`
	naiveLook   = `SELECT state, status_code, response_header, response_body FROM naive_records WHERE id = ?`
	naiveRecord = `
INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at,
  status_code, response_header, response_body, settled_at, expires_at)
VALUES (?, ?, ?, ?, ?, 'completed', ?, 1, ?, 0, ?, ?, ?, ?, ?, ?)`
	business = `INSERT INTO business (caller, amount) VALUES (?, ?)`
)

const series = `WITH RECURSIVE series (value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM series WHERE value < ?) `

var answer = onlyonce.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: make([]byte, 500)}

// Statements that add completed records, as many as the first parameter says. They expire at the
// second one, in microseconds since 1970.
const (
	loadSQLite = "INSERT INTO onlyonce_records" + loaded
	loadNaive  = "INSERT INTO naive_records" + loaded
	loaded     = ` (created_at, id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, settled_at, expires_at, status_code, response_header, response_body)
		SELECT value, randomblob(32), 'tenant', 'POST /v1/orders', 'key-' || value, randomblob(32), 'completed', randomblob(16), 1, value, 0, value, ? + value, 201, '{"Content-Type":["application/json"]}', zeroblob(500) FROM series`
)

// A bench is one file with both tables, each as large as the other.
type bench struct {
	file  string
	store *sqlstore.Store
	db    *sql.DB // the store's pool
	naive *sql.DB // a single connection to the same file
}

func newBench(b *testing.B) *bench { return newBenchWith(b, 1) }

// newBenchWith returns a file whose tables have so many records.
func newBenchWith(b *testing.B, records int) *bench {
	file := filepath.Join(b.TempDir(), "bench.db")
	s, db := openSQLite(b, file)
	naive, err := sql.Open("sqlite", sqliteDSN(file)+"&_txlock=immediate")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { naive.Close() })
	naive.SetMaxOpenConns(1)
	if _, err := naive.Exec(naiveTable); err != nil {
		b.Fatal(err)
	}
	for _, statement := range []string{loadSQLite, loadNaive} {
		addSQLite(b, naive, statement, records, 4e15)
	}
	return &bench{file: file, store: s, db: db, naive: naive}
}

// addSQLite runs one of the statements above on a pool of one connection. With SQLite's own cache
// of 2 MB, a million records would take many minutes.
func addSQLite(b *testing.B, db *sql.DB, statement string, records int, expires float64) {
	b.Helper()
	for _, s := range []struct {
		query string
		args  []any
	}{
		{"PRAGMA cache_size = -500000", nil},
		{series + statement, []any{records, int64(expires)}},
		{"PRAGMA wal_checkpoint(TRUNCATE)", nil},
		{"PRAGMA cache_size = -2000", nil},
	} {
		if _, err := db.Exec(s.query, s.args...); err != nil {
			b.Fatal(err)
		}
	}
}

// together calls f once for each of b.N, from so many callers.
func together(b *testing.B, callers int, f func(ctx context.Context, i int64) error) {
	ctx, cancel := context.WithCancel(b.Context()) // a caller can always be cancelled
	defer cancel()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := f(ctx, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

// Keys are unique over all runs.
var keys atomic.Int64

func nextID() onlyonce.ID {
	return onlyonce.ID{Tenant: "tenant", Operation: "POST /v1/orders", Key: "bench-" + strconv.FormatInt(keys.Add(1), 10)}
}

func owner() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return string(b[:])
}

var fingerprint = onlyonce.Fingerprint([]byte("what is asked for"))

func BenchmarkSQLite(b *testing.B) {
	on := newBench(b)
	claimsAndSettles(b, on.store, on.prepare(b, naiveClaim), on.prepare(b, naiveSettle))
}

// claimsAndSettles compares a store with two naive statements a request.
func claimsAndSettles(b *testing.B, s *sqlstore.Store, claim, settle *sql.Stmt) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("claim+settle/naive/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, _ int64) error {
				id, own := nextID(), owner()
				hash, now := id.Hash(), time.Now().UnixMicro()
				if _, err := claim.ExecContext(ctx, hash[:], id.Tenant, id.Operation, id.Key, fingerprint, []byte(own), now, now+30e6, now); err != nil {
					return err
				}
				now = time.Now().UnixMicro()
				_, err := settle.ExecContext(ctx, answer.Status, `{"Content-Type":["application/json"]}`, answer.Body, now, now+86400e6, hash[:], []byte(own))
				return err
			})
		})
		b.Run(fmt.Sprintf("claim+settle/group/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, _ int64) error {
				return claimAndSettle(ctx, s)
			})
		})
	}
}

// claimAndSettle runs a new command.
func claimAndSettle(ctx context.Context, s onlyonce.Store) error {
	c := onlyonce.Claim{ID: nextID(), Owner: owner(), Fingerprint: fingerprint, Lease: 30 * time.Second, TakeUnknown: true}
	r, err := s.Claim(ctx, c)
	if err != nil {
		return err
	}
	return s.Settle(ctx, onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence},
		onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: 24 * time.Hour})
}

func BenchmarkSQLiteReplay(b *testing.B) {
	on := newBench(b)
	ids := make([]onlyonce.ID, 1000)
	for i := range ids {
		ids[i] = nextID()
		c := onlyonce.Claim{ID: ids[i], Owner: owner(), Fingerprint: fingerprint, Lease: time.Minute}
		r, err := on.store.Claim(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
		if err := on.store.Settle(b.Context(), h, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: time.Hour}); err != nil {
			b.Fatal(err)
		}
	}
	for _, callers := range []int{1, 16, 256} {
		b.Run(strconv.Itoa(callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, i int64) error {
				r, err := on.store.Claim(ctx, onlyonce.Claim{ID: ids[i%1000], Owner: "another", Fingerprint: fingerprint, Lease: time.Minute})
				if err == nil && len(r.Result.Body) != 500 {
					err = fmt.Errorf("no replay but %v", r)
				}
				return err
			})
		})
	}
}

func BenchmarkSQLiteDoTx(b *testing.B) {
	on := newBench(b)
	look, insert, record := on.prepare(b, naiveLook), on.prepare(b, business), on.prepare(b, naiveRecord)
	grouped, err := on.db.Prepare(business)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { grouped.Close() })
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("naive/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, i int64) error {
				id, own := nextID(), owner()
				hash := id.Hash()
				tx, err := on.naive.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				var state string
				if err := tx.StmtContext(ctx, look).QueryRowContext(ctx, hash[:]).Scan(&state, new(any), new(any), new(any)); err != sql.ErrNoRows {
					return fmt.Errorf("found %q: %w", state, err)
				}
				if _, err := tx.StmtContext(ctx, insert).ExecContext(ctx, "caller", i); err != nil {
					return err
				}
				now := time.Now().UnixMicro()
				if _, err := tx.StmtContext(ctx, record).ExecContext(ctx, hash[:], id.Tenant, id.Operation, id.Key, fingerprint, []byte(own), now, now,
					answer.Status, `{"Content-Type":["application/json"]}`, answer.Body, now, now+86400e6); err != nil {
					return err
				}
				return tx.Commit()
			})
		})
		b.Run(fmt.Sprintf("group/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, i int64) error {
				c := onlyonce.Claim{ID: nextID(), Owner: owner(), Fingerprint: fingerprint, Lease: 30 * time.Second, TakeUnknown: true}
				_, err := on.store.RunTx(ctx, c, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
					_, err := tx.StmtContext(ctx, grouped).ExecContext(ctx, "caller", i)
					return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: 24 * time.Hour}, err
				})
				return err
			})
		})
	}
}

func (on *bench) prepare(b *testing.B, query string) *sql.Stmt {
	st, err := on.naive.Prepare(query)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	return st
}
