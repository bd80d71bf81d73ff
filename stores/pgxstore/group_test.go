package pgxstore_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// many is more callers than one statement each is best for.
const many = 128

func crowd(f func(i int)) {
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// A tracer counts the batches it sees.
type tracer struct{ batches atomic.Int64 }

func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	t.batches.Add(1)
	return ctx
}
func (*tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// ways are the ways in which a pool may send statements.
func ways(t *testing.T, f func(t *testing.T, pool *pgxpool.Pool)) {
	seen := new(tracer)
	for name, set := range map[string]func(*pgx.ConnConfig){
		"as it is":           func(*pgx.ConnConfig) {},
		"prepared by nobody": func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"described":          func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe },
		"traced":             func(c *pgx.ConnConfig) { c.Tracer = seen },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newPool(t).Config()
			set(cfg.ConnConfig)
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			f(t, pool)
		})
	}
	if seen.batches.Load() == 0 {
		t.Error("a tracer saw nothing")
	}
}

func TestGroup_CallersWrittenTogetherReadWhatTheyWrote(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	tenants := []string{"acme", "", "a\x00b", "\xff\xfe", `\x41`, "é", "{a,\"b\"}", "NULL"}
	bodies := [][]byte{nil, {}, all, []byte("{}"), bytes.Repeat(all, 300)}
	ways(t, func(t *testing.T, pool *pgxpool.Pool) {
		s := open(t, pool)
		crowd(func(i int) {
			c := claimOf(fmt.Sprint("k", i))
			c.ID.Tenant = tenants[i%len(tenants)]
			if i%3 == 0 {
				c.Fingerprint, c.SkipFingerprint = nil, true
			}
			r, err := s.Claim(t.Context(), c)
			if err != nil || r.Owner != c.Owner || r.Fence == 0 {
				t.Errorf("claim %d: %+v, %v", i, r, err)
				return
			}
			st := onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour, Result: onlyonce.Result{
				Status: 200 + i, Body: bodies[i%len(bodies)], Ref: tenants[(i+1)%len(tenants)],
			}}
			switch i % 4 {
			case 0:
				st.Result.Header = map[string][]string{"Z": {"1", "2", ""}, "A": {"é\x00\xff"}, "B": nil}
			case 1:
				st = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "broke: " + string(all[:64]), Final: true}
			case 2:
				st.State, st.Keep = onlyonce.StateUnknown, 0
			}
			if err := s.Settle(t.Context(), holdOf(r), st); err != nil {
				t.Errorf("settle %d: %v", i, err)
			}
			was, err := s.Lookup(t.Context(), c.ID)
			if err != nil || was.ID != c.ID || was.State != st.State || was.Fence != r.Fence || was.Owner != c.Owner || was.Final != st.Final || was.Error != st.Error ||
				!bytes.Equal(was.Fingerprint, c.Fingerprint) || was.Result.Status != st.Result.Status || was.Result.Ref != st.Result.Ref ||
				!bytes.Equal(was.Result.Body, st.Result.Body) || !maps.EqualFunc(was.Result.Header, st.Result.Header, slices.Equal) || (was.KeepLeft > 0) != (st.Keep > 0) {
				t.Errorf("%d: after %+v and %+v the record is %+v, %v", i, c, st, was, err)
			}
		})
	})
}

func TestGroup_APlanForASmallTableIsNotTakenForALargeOne(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	turn := 0
	work := func() {
		turn++
		crowd(func(i int) {
			r := mustClaim(t, s, claimOf(fmt.Sprint(turn, "-", i)))
			if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
				t.Error(err)
			}
		})
	}
	scans := func() (whole, byIndex int) {
		err := pool.QueryRow(t.Context(), `SELECT seq_scan, idx_scan FROM pg_stat_user_tables
			WHERE relname = 'onlyonce_records' AND schemaname = current_schema()`).Scan(&whole, &byIndex)
		if err != nil {
			t.Fatal(err)
		}
		return whole, byIndex
	}
	for range 8 { // a server makes a plan for good when it has planned a few times
		work()
		if _, err := pool.Exec(t.Context(), "TRUNCATE onlyonce_records; ANALYZE onlyonce_records"); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		work() // a server's figures come late, and only when its connections are used
		whole, byIndex := scans()
		if byIndex > 40*many {
			if whole > byIndex/20 { // some belong to the migration, some to what a slow server had run alone
				t.Errorf("the table was read as a whole %d times, for %d uses of an index", whole, byIndex)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server counts %d uses of an index", byIndex)
		}
	}
}

func TestGroup_StatementsThatTheServerRejectsAfterAMigrationArePreparedAnew(t *testing.T) {
	ways(t, func(t *testing.T, pool *pgxpool.Pool) {
		s := open(t, pool)
		for i := range 4 { // by every connection
			mustClaim(t, s, claimOf(fmt.Sprint("before", i)))
		}
		if _, err := pool.Exec(t.Context(), "DROP VIEW onlyonce_readable; ALTER TABLE onlyonce_records ALTER fence TYPE numeric"); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			r := mustClaim(t, s, claimOf(fmt.Sprint("after", i)))
			if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
				t.Error(err)
			}
		}
	})
}
