package pgxstore_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
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

// ownStatements are those that read or write records over the store's own connections.
var ownStatements = []string{
	"claim", "claims", "take", "raise", "renew", "step", "settle", "settles", "release", "resolve", "remove", "lookup", "lookups",
}

// withKeptPlans calls f with a connection as the store's own are, on which the server
// plans each statement once, and with a function that returns the plan of a statement. The
// table has one record then, and its statistics say so.
func withKeptPlans(t *testing.T, f func(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, planOf func(name string) string)) {
	t.Helper()
	pool := newPool(t)
	s := open(t, pool)
	mustClaim(t, s, claimOf("the only one"))
	if _, err := pool.Exec(t.Context(), "ANALYZE onlyonce_records"); err != nil {
		t.Fatal(err)
	}
	err := pgxstore.UseOwnConn(pool, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SET plan_cache_mode = force_generic_plan"); err != nil {
			return err
		}
		for _, name := range ownStatements {
			if _, err := conn.Exec(ctx, "PREPARE "+name+"_statement AS "+pgxstore.Text(s, name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		f(ctx, pool, conn, func(name string) string {
			var nulls []string
			err := conn.QueryRow(ctx, "SELECT array_fill('NULL'::text, ARRAY[cardinality(parameter_types)]) FROM pg_prepared_statements WHERE name = $1", name+"_statement").Scan(&nulls)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := conn.Query(ctx, "EXPLAIN EXECUTE "+name+"_statement("+strings.Join(nulls, ", ")+")")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return strings.Join(plan, "\n")
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestGroup_APlanForASmallTableIsNotTakenForALargeOne(t *testing.T) {
	withKeptPlans(t, func(_ context.Context, _ *pgxpool.Pool, _ *pgx.Conn, planOf func(string) string) {
		for _, name := range ownStatements {
			if plan := planOf(name); strings.Contains(plan, "Seq Scan on onlyonce_records") {
				t.Errorf("%s reads the whole table:\n%s", name, plan)
			}
		}
	})
}

// wholeIndex matches a step of a plan that reads every entry of an index.
var wholeIndex = regexp.MustCompile(`Index (Only )?Scan using \S+ on onlyonce_records[^\n]*(\n\s+[^\sI]|\z)`)

func TestGroup_NoPlanReadsAWholeIndexOnceTheServerHasForgottenThoseForASmallTable(t *testing.T) {
	withKeptPlans(t, func(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, planOf func(string) string) {
		for _, name := range ownStatements {
			planOf(name)
		}
		_, err := pool.Exec(ctx, `INSERT INTO onlyonce_records SELECT (jsonb_populate_record(r, jsonb_build_object(
			'id', '\x' || encode(sha256(g::text::bytea), 'hex'), 'idem_key', g::text))).* FROM onlyonce_records r, generate_series(1, 5000) g`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "DISCARD PLANS"); err != nil {
			t.Fatal(err)
		}
		for _, name := range ownStatements {
			if plan := planOf(name); wholeIndex.MatchString(plan) {
				t.Errorf("%s reads a whole index:\n%s", name, plan)
			}
		}
	})
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

// A batch in which one statement fails is sent again, statement by statement. "cut" then ends the
// connection, after "first" has been written and its caller has gone.
func TestGroup_ACutConnectionSendsNothingAgainWhoseCallerHasGone(t *testing.T) {
	first, cut, poison := inOrder(func(name string) [32]byte { return claimOf(name).ID.Hash() })
	pool := newPool(t)
	s := open(t, pool)
	if _, err := pool.Exec(t.Context(), `
CREATE TABLE together (ready boolean);
CREATE SEQUENCE sent_first; CREATE SEQUENCE sent_cut;
CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	CASE NEW.idem_key
	WHEN 'slow' THEN PERFORM pg_sleep(0.5);
	WHEN '`+first+`' THEN PERFORM nextval('sent_first');
	WHEN '`+cut+`' THEN IF nextval('sent_cut') = 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(1); END IF;
	WHEN '`+poison+`' THEN RAISE EXCEPTION 'poison' USING ERRCODE = '57014';
	ELSE NULL;
	END CASE;
	RETURN NEW;
END $$;
CREATE TRIGGER meet BEFORE INSERT ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION meet()`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var written atomic.Bool
	wg.Go(func() {
		defer written.Store(true)
		mustClaim(t, s, claimOf("slow"))
	})
	for running := false; !running && !written.Load(); { // a busy machine may miss that it runs
		if err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name = current_setting('application_name'))").Scan(&running); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{first, cut} {
		wg.Go(func() {
			c := claimOf(name)
			if r, err := s.Claim(t.Context(), c); err != nil || r.Owner != c.Owner {
				t.Errorf("claim of %s: %+v, %v", name, r, err)
			}
		})
	}
	wg.Go(func() {
		if _, err := s.Claim(t.Context(), claimOf(poison)); err == nil || !strings.Contains(err.Error(), "poison") {
			t.Errorf("claim that fails: %v", err)
		}
	})
	wg.Wait()
	var sent int
	if err := pool.QueryRow(t.Context(), "SELECT last_value FROM sent_first").Scan(&sent); err != nil || sent > 2 {
		t.Errorf("the claim whose caller had gone was sent %d times, error %v", sent, err)
	}
}

// inOrder returns three names in the order of their hashes.
func inOrder(hash func(name string) [32]byte) (a, b, c string) {
	names := []string{"a", "b", "c"}
	slices.SortFunc(names, func(a, b string) int {
		x, y := hash(a), hash(b)
		return bytes.Compare(x[:], y[:])
	})
	return names[0], names[1], names[2]
}
