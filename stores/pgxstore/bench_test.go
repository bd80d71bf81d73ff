package pgxstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/processortime"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A plain implementation has one statement to claim and one to settle, each with its own
// commit, and a pool with the defaults of pgx.
const (
	naiveTable = `
CREATE TABLE naive_records (
  id bytea PRIMARY KEY, tenant text NOT NULL, operation text NOT NULL, idem_key text NOT NULL, fingerprint bytea,
  state text NOT NULL, owner bytea NOT NULL, attempt integer NOT NULL, fence bigint NOT NULL, lease_until timestamptz NOT NULL,
  created_at timestamptz NOT NULL, settled_at timestamptz, expires_at timestamptz, status_code integer, response_header text, response_body bytea) WITH (fillfactor = 80);
CREATE INDEX ON naive_records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE business (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, caller text NOT NULL, amount bigint NOT NULL);`
	naiveClaim = `
INSERT INTO naive_records (id, tenant, operation, idem_key, fingerprint, state, owner, attempt, fence, lease_until, created_at)
VALUES ($1, $2, $3, $4, $5, 'processing', $6, 1, 1, clock_timestamp() + interval '30 s', clock_timestamp()) ON CONFLICT (id) DO NOTHING`
	naiveSettle = `
UPDATE naive_records SET state = 'completed', status_code = $1, response_header = $2, response_body = $3,
       settled_at = clock_timestamp(), expires_at = clock_timestamp() + interval '24 h'
WHERE id = $4 AND owner = $5 AND state = 'processing'`
	naiveLook = `SELECT state, fingerprint, status_code, response_header, response_body FROM naive_records WHERE id = $1`
	business  = `INSERT INTO business (caller, amount) VALUES ($1, $2)`
)

var (
	answer      = onlyonce.Result{Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}}, Body: make([]byte, 500)}
	fingerprint = onlyonce.Fingerprint([]byte("the request"))
)

type bench struct {
	schema string
	store  *pgxstore.Store
	pool   *pgxpool.Pool // of the store, and of the baseline
	naive  *pgxpool.Pool // as pgx makes it: a connection for each processor, but at least four
}

func newBench(b *testing.B) *bench {
	schema := newSchema(b)
	on := &bench{schema: schema, pool: openPool(b, "search_path="+schema, "pool=70"), naive: openPool(b, "search_path="+schema, "pool=4")}
	connect(b, on.naive, 4)
	on.store = open(b, on.pool)
	if _, err := on.pool.Exec(b.Context(), naiveTable); err != nil {
		b.Fatal(err)
	}
	return on
}

// connect opens connections that stay in the pool, so that no benchmark measures how long it takes to
// connect.
func connect(b *testing.B, pool *pgxpool.Pool, n int) {
	b.Helper()
	for range n {
		conn, err := pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Release()
	}
}

// pool64 returns a pool of 64 connections.
func (on *bench) pool64(b *testing.B) *pgxpool.Pool {
	b.Helper()
	pool := openPool(b, "search_path="+on.schema, "pool=64")
	connect(b, pool, 64)
	return pool
}

// together calls f once for each of b.N, from so many callers.
func together(b *testing.B, callers int, f func(ctx context.Context, i int64) error) {
	ctx, cancel := context.WithCancel(b.Context())
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

var keys atomic.Int64

func nextID() onlyonce.ID {
	return onlyonce.ID{Tenant: "tenant", Operation: "POST /v1/orders", Key: "bench-" + strconv.FormatInt(keys.Add(1), 10)}
}

func owner() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return string(b[:])
}

func BenchmarkClaimAndSettle(b *testing.B) {
	on := newBench(b)
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("naive/%d", callers), func(b *testing.B) { on.claimAndSettlePlainly(b, on.naive, callers) })
		b.Run(fmt.Sprintf("group/%d", callers), func(b *testing.B) { on.claimAndSettle(b, callers) })
	}
	b.Run("naive64/256", func(b *testing.B) { on.claimAndSettlePlainly(b, on.pool64(b), 256) })
	// The connections are as many as the store's for so many callers.
	b.Run("pgbench/one-commit/256", func(b *testing.B) { pgbenchRun{clients: 2, callers: 256, oneCommit: true}.bench(b, on.pool) })
	b.Run("pgbench/two-commits/16", func(b *testing.B) { pgbenchRun{clients: 1, callers: 16}.bench(b, on.pool) })
	b.Run("server/256", func(b *testing.B) {
		before := on.serverTime(b)
		on.claimAndSettle(b, 256)
		b.ReportMetric(float64((on.serverTime(b)-before).Nanoseconds())/1000/float64(b.N), "server-µs/op")
	})
}

// claimAndSettlePlainly runs new commands by two statements each.
func (on *bench) claimAndSettlePlainly(b *testing.B, pool *pgxpool.Pool, callers int) {
	together(b, callers, func(ctx context.Context, _ int64) error {
		id, own := nextID(), []byte(owner())
		hash := id.Hash()
		if _, err := pool.Exec(ctx, naiveClaim, hash[:], id.Tenant, id.Operation, id.Key, fingerprint, own); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, naiveSettle, answer.Status, `{"Content-Type":["application/json"]}`, answer.Body, hash[:], own)
		return err
	})
}

// claimAndSettle runs new commands by the store.
func (on *bench) claimAndSettle(b *testing.B, callers int) {
	together(b, callers, func(ctx context.Context, _ int64) error {
		c := onlyonce.Claim{ID: nextID(), Owner: owner(), Fingerprint: fingerprint, Lease: 30 * time.Second, TakeUnknown: true}
		r, err := on.store.Claim(ctx, c)
		if err != nil {
			return err
		}
		return on.store.Settle(ctx, onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence},
			onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: 24 * time.Hour})
	})
}

// serverTime returns the processor time that the server's processes for the connections of the
// pool have used. It skips the benchmark if the server is on another machine.
func (on *bench) serverTime(b *testing.B) time.Duration {
	b.Helper()
	rows, err := on.pool.Query(b.Context(), "SELECT pid FROM pg_stat_activity WHERE application_name = current_setting('application_name')")
	if err != nil {
		b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		if program, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || strings.TrimSpace(string(program)) != "postgres" {
			b.Skip("the processes of the server are not in /proc of this machine")
		}
	}
	used, err := processortime.Of(pids...)
	if err != nil {
		b.Fatal(err)
	}
	return used
}

func BenchmarkReplay(b *testing.B) {
	on := newBench(b)
	ids := make([]onlyonce.ID, 1000)
	for i := range ids {
		ids[i] = nextID()
		c := onlyonce.Claim{ID: ids[i], Owner: owner(), Fingerprint: fingerprint, Lease: time.Minute}
		r, err := on.store.Claim(b.Context(), c)
		if err == nil {
			err = on.store.Settle(b.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence},
				onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: time.Hour})
		}
		hash := c.ID.Hash()
		_, naive := on.naive.Exec(b.Context(), naiveClaim, hash[:], c.ID.Tenant, c.ID.Operation, c.ID.Key, fingerprint, []byte(c.Owner))
		_, settle := on.naive.Exec(b.Context(), naiveSettle, answer.Status, `{"Content-Type":["application/json"]}`, answer.Body, hash[:], []byte(c.Owner))
		if err := errors.Join(err, naive, settle); err != nil {
			b.Fatal(err)
		}
	}
	look := func(b *testing.B, pool *pgxpool.Pool, callers int) {
		together(b, callers, func(ctx context.Context, i int64) error {
			hash := ids[i%1000].Hash()
			var state, header string
			var print, body []byte
			var status int
			return pool.QueryRow(ctx, naiveLook, hash[:]).Scan(&state, &print, &status, &header, &body)
		})
	}
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("naive/%d", callers), func(b *testing.B) { look(b, on.naive, callers) })
		b.Run(fmt.Sprintf("group/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, i int64) error {
				r, err := on.store.Claim(ctx, onlyonce.Claim{ID: ids[i%1000], Owner: "another", Fingerprint: fingerprint, Lease: time.Minute})
				if err == nil && len(r.Result.Body) != 500 {
					err = fmt.Errorf("no replay but %v", r)
				}
				return err
			})
		})
	}
	b.Run("naive64/256", func(b *testing.B) { look(b, on.pool64(b), 256) })
}

func BenchmarkRunTx(b *testing.B) {
	on := newBench(b)
	connect(b, on.pool, 64)
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("insert/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, i int64) error {
				return pgx.BeginFunc(ctx, on.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, business, "caller", i)
					return err
				})
			})
		})
		b.Run(fmt.Sprintf("once/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, i int64) error {
				c := onlyonce.Claim{ID: nextID(), Owner: owner(), Fingerprint: fingerprint, Lease: 30 * time.Second, TakeUnknown: true}
				_, err := on.store.RunTx(ctx, c, func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
					_, err := tx.Exec(ctx, business, "caller", i)
					return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: 24 * time.Hour}, err
				})
				return err
			})
		})
	}
}
