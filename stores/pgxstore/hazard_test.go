package pgxstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

func claimOf(name string) onlyonce.Claim {
	return onlyonce.Claim{
		ID: onlyonce.ID{Tenant: "acme", Operation: "pay", Key: name}, Owner: owner(), Fingerprint: fingerprint, Lease: time.Minute, RetryFailed: true,
	}
}

var completed = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: answer, Keep: time.Hour}

func holdOf(r onlyonce.Record) onlyonce.Hold {
	return onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
}

func mustClaim(t *testing.T, s onlyonce.Store, c onlyonce.Claim) onlyonce.Record {
	t.Helper()
	r, err := s.Claim(t.Context(), c)
	if err != nil || r.Owner != c.Owner {
		t.Fatalf("claim: %+v, %v", r, err)
	}
	return r
}

// own makes a table of the caller's.
func own(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "CREATE TABLE own (name text NOT NULL)"); err != nil {
		t.Fatal(err)
	}
}

func rows(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM own").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func inserts(name string) func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
	return func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		_, err := tx.Exec(ctx, "INSERT INTO own (name) VALUES ($1)", name)
		return completed, err
	}
}

func TestHazard_AClaimInSomebodysTransactionKeepsOnlyItsOwnDuplicatesWaiting(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	held := claimOf("held")
	mustClaim(t, s.WithTx(tx), held)

	duplicate := make(chan onlyonce.Record, 1)
	go func() {
		r, err := s.Claim(context.Background(), claimOf("held"))
		if err != nil {
			t.Error(err)
		}
		duplicate <- r
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			c := claimOf(strings.Repeat("x", i+1))
			if r, err := s.Claim(ctx, c); err != nil || r.Owner != c.Owner {
				t.Errorf("another command: %+v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-duplicate; r.Owner != held.Owner {
		t.Errorf("the duplicate got %+v", r)
	}
}

func TestHazard_ConnectionsThatAreCutAreMadeAnew(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	for range 5 {
		r := mustClaim(t, s, claimOf(owner()))
		if _, err := s.Lookup(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
		cut(t, pool)
		if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
			t.Fatalf("settle after the cut: %v", err)
		}
	}
}

// cut ends all connections of the pool's schema but the one it uses.
func cut(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	name := pool.Config().ConnConfig.RuntimeParams["application_name"]
	if _, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1", name); err != nil {
		t.Fatal(err)
	}
}

// After a failover, connections may lead to the former primary, on which transactions can only
// read, while new ones lead to the primary.
func TestHazard_AServerThatCanNoLongerBeWrittenIsLeft(t *testing.T) {
	var demoted atomic.Bool
	primary := newPool(t)
	cfg := primary.Config()
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if demoted.Load() {
			c.RuntimeParams["default_transaction_read_only"] = "on"
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := open(t, pool)
	settled, released, held := mustClaim(t, s, claimOf("settled")), mustClaim(t, s, claimOf("released")), mustClaim(t, s, claimOf("held"))
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return s.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"})
	}); err != nil {
		t.Fatal(err)
	}
	for call, do := range map[string]func() error{
		"Claim": func() error {
			_, err := s.Claim(t.Context(), claimOf(rand.Text()))
			return err
		},
		"Renew":  func() error { return s.Renew(t.Context(), holdOf(held), time.Minute, nil) },
		"Settle": func() error { return s.Settle(t.Context(), holdOf(settled), completed) },
		"RunTx": func() error {
			_, err := s.RunTx(t.Context(), claimOf(rand.Text()), func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				return completed, nil
			})
			return err
		},
		"SettleTx": func() error {
			return s.SettleTx(t.Context(), holdOf(released), func(context.Context, pgx.Tx) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil })
		},
		"Lease": func() error {
			_, err := s.Outbox().Lease(t.Context(), "owner", time.Nanosecond, 1)
			return err
		},
	} {
		t.Run(call, func(t *testing.T) {
			demoted.Store(true)
			cut(t, pool)
			for { // until no connection is left that was cut
				if err := do(); errors.Is(err, onlyonce.ErrUnavailable) && strings.Contains(err.Error(), "primary") {
					break
				} else if err == nil {
					t.Fatal("it succeeded on a server that can't be written")
				}
			}
			demoted.Store(false)
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				err := do()
				if err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("its old connections are still there: %v", err)
				}
			}
		})
	}
}

func TestHazard_AFunctionThatEndsItsTransactionIsFoundOut(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	own(t, pool)
	for _, end := range []string{"ROLLBACK", "COMMIT", "ROLLBACK; BEGIN", "COMMIT; BEGIN"} {
		t.Run(end, func(t *testing.T) {
			c := claimOf(end)
			ends := func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error) {
				_, err := tx.Exec(ctx, end)
				return completed, err
			}
			if r, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return ends(ctx, tx)
			}); !errors.Is(err, onlyonce.ErrUnknown) {
				t.Errorf("RunTx: %v, and %+v", err, r)
			}
			if r, err := s.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("recorded: %+v, %v", r, err)
			}
			c.Owner = owner()
			r := mustClaim(t, s, c)
			if err := s.SettleTx(t.Context(), holdOf(r), ends); !errors.Is(err, onlyonce.ErrUnknown) {
				t.Errorf("SettleTx: %v", err)
			}
			if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateProcessing {
				t.Errorf("after SettleTx: %+v, %v", r, err)
			}
		})
	}
}

func TestHazard_ATransactionOfAFunctionIsNotItsToEndOrToUseLater(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	own(t, pool)
	var kept pgx.Tx
	_, err := s.RunTx(t.Context(), claimOf("k"), func(ctx context.Context, tx pgx.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		kept = tx
		for name, end := range map[string]func(context.Context) error{"commit": tx.Commit, "rollback": tx.Rollback} {
			if end(ctx) == nil {
				t.Errorf("%s was not rejected", name)
			}
		}
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return completed, err
		}
		if _, err := inserts("undone")(ctx, savepoint, r); err != nil {
			return completed, err
		}
		if err := savepoint.Rollback(ctx); err != nil {
			return completed, err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"own"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}})); err != nil {
			return completed, err
		}
		var b pgx.Batch
		b.Queue("INSERT INTO own (name) VALUES ('batched')")
		return completed, tx.SendBatch(ctx, &b).Close()
	})
	if err != nil || rows(t, pool) != 2 {
		t.Fatalf("%v, %d rows", err, rows(t, pool))
	}
	ctx := t.Context()
	_, exec := kept.Exec(ctx, "INSERT INTO own (name) VALUES ('late')")
	_, query := kept.Query(ctx, "SELECT 1")
	_, begin := kept.Begin(ctx)
	_, copied := kept.CopyFrom(ctx, pgx.Identifier{"own"}, []string{"name"}, pgx.CopyFromRows([][]any{{"late"}}))
	_, prepare := kept.Prepare(ctx, "late", "SELECT 1")
	for name, err := range map[string]error{
		"exec": exec, "query": query, "begin": begin, "copy": copied, "prepare": prepare, "commit": kept.Commit(ctx),
		"row": kept.QueryRow(ctx, "SELECT 1").Scan(new(int)), "batch": kept.SendBatch(ctx, &pgx.Batch{}).Close(),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
}

func TestHazard_ASerializationFailureRunsTheFunctionAgain(t *testing.T) {
	pool := newPool(t, "default_transaction_isolation=repeatable read")
	s := open(t, pool)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	var runs atomic.Int64
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, err := s.RunTx(t.Context(), claimOf(owner()), func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				runs.Add(1)
				_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1")
				return completed, err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil || n != 5 {
		t.Errorf("the counter is %d after 5 commands and %d runs, %v", n, runs.Load(), err)
	}
}

func TestHazard_ACommandThatIsClaimedDuringItsTransactionIsNotRunTwice(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	own(t, pool)
	c, other := claimOf("k"), claimOf("k")
	runs := 0
	r, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx pgx.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		runs++
		mustClaim(t, s, other)
		return inserts("k")(ctx, tx, r)
	})
	if err != nil || r.Owner != other.Owner || r.State != onlyonce.StateProcessing || runs != 1 || rows(t, pool) != 0 {
		t.Errorf("%+v, %v, after %d runs with %d rows", r, err, runs, rows(t, pool))
	}
}

// What the first asks for is not in the database before its commit: its locks
// say that it is not the same.
func TestHazard_ADifferentRequestIsRejectedWhileAnotherStoreRunsTheCommand(t *testing.T) {
	pool := newPool(t)
	s, there := open(t, pool), open(t, pool)
	run := func(s *pgxstore.Store, print string, fn func()) onlyonce.Record {
		c := claimOf("k")
		if c.Fingerprint = []byte(print); print == "" {
			c.Fingerprint, c.SkipFingerprint = nil, true
		}
		r, err := s.RunTx(t.Context(), c, func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			fn()
			return onlyonce.Settlement{}, nil
		})
		if err != nil {
			t.Error(err)
		}
		return r
	}
	for _, asks := range []struct {
		first, second string
		other         bool
	}{{"a", "a", false}, {"a", "b", true}, {"a", "", false}, {"", "a", false}, {"", "", false}} {
		run(s, asks.first, func() {
			for range 2 {
				r := run(there, asks.second, func() { t.Error("it ran twice") })
				if other := r.Fingerprint != nil && string(r.Fingerprint) != asks.second; r.State != onlyonce.StateProcessing || other != asks.other {
					t.Errorf("%q while %q runs: %+v", asks.second, asks.first, r)
				}
			}
		})
		ran := false
		if run(there, asks.second, func() { ran = true }); !ran {
			t.Errorf("%q did not run after %q was released", asks.second, asks.first)
		}
	}
}

// The locks of commands are the database's, and not a schema's.
func TestHazard_ACommandDoesNotWaitForItsNamesakeInAnotherSchema(t *testing.T) {
	run := func(then func()) {
		r, err := open(t, newPool(t)).RunTx(t.Context(), claimOf("k"), func(context.Context, pgx.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			then()
			return completed, nil
		})
		if err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("run: %+v, %v", r, err)
		}
	}
	run(func() { run(func() {}) })
}

func TestHazard_AConstraintOfTheCallersIsItsOwnError(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE own (name text UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO own VALUES ('k')"); err != nil {
		t.Fatal(err)
	}
	c := claimOf("k")
	_, err := s.RunTx(t.Context(), c, inserts("k"))
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "23505" || rows(t, pool) != 1 {
		t.Errorf("%v", err)
	}
	if r, err := s.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("recorded: %+v, %v", r, err)
	}
}

// A purge may have raised the floor meanwhile: the floor does not tell then whether the
// transaction was committed.
func TestHazard_ATransactionThatTheServerRejectsIsNotInDoubt(t *testing.T) {
	pool := newPool(t)
	s := open(t, pool)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE own (name text UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO own VALUES ('k')"); err != nil {
		t.Fatal(err)
	}
	insert := inserts("k")
	_, err := s.RunTx(t.Context(), claimOf("k"), func(ctx context.Context, tx pgx.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
		if _, err := pool.Exec(ctx, "UPDATE onlyonce_fence SET floor = $1", r.Fence); err != nil {
			return onlyonce.Settlement{}, err
		}
		return insert(ctx, tx, r)
	})
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "23505" || errors.Is(err, onlyonce.ErrUnknown) || rows(t, pool) != 1 {
		t.Errorf("%v", err)
	}
}

func TestHazard_WaitersHearOfCommandsThatEndElsewhere(t *testing.T) {
	schema := newSchema(t)
	elsewhere := open(t, openPool(t, "search_path="+schema))
	own(t, openPool(t, "search_path="+schema))
	for name, end := range map[string]func(onlyonce.Record) error{
		"settled":  func(r onlyonce.Record) error { return elsewhere.Settle(t.Context(), holdOf(r), completed) },
		"released": func(r onlyonce.Record) error { return elsewhere.Settle(t.Context(), holdOf(r), onlyonce.Settlement{}) },
		"settled in a transaction": func(r onlyonce.Record) error {
			return elsewhere.SettleTx(t.Context(), holdOf(r), func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error) {
				return inserts("row")(ctx, tx, r)
			})
		},
	} {
		if !heard(t, open(t, openPool(t, "search_path="+schema)), elsewhere, end) {
			t.Errorf("nobody heard that a command was %s", name)
		}
	}
}

// hearing is how long one is listened for at first, and then ever longer.
const hearing = 100 * time.Millisecond

// heard ends commands elsewhere until one is heard of here: at first the others
// do not know that somebody listens.
func heard(t *testing.T, here, elsewhere *pgxstore.Store, end func(onlyonce.Record) error) bool {
	t.Helper()
	begun, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := here.Wait(begun, claimOf("nobody's").ID); err != nil { // all are woken once it listens
		t.Fatal(err)
	}
	for long := hearing; long < time.Minute; long *= 2 {
		r := mustClaim(t, elsewhere, claimOf(owner()))
		ctx, cancel := context.WithTimeout(t.Context(), long)
		woken := make(chan error, 1)
		go func() { woken <- here.Wait(ctx, r.ID) }()
		if err := end(r); err != nil {
			t.Fatal(err)
		}
		err := <-woken
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

func TestHazard_APoolThatDoesNotWaitForTheDiskIsOverruled(t *testing.T) {
	pool := newPool(t, "synchronous_commit=off")
	s := open(t, pool)
	own(t, pool)
	_, err := s.RunTx(t.Context(), claimOf("k"), func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		return completed, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := flushed(t, pool)
	r := mustClaim(t, s, claimOf("l"))
	if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
		t.Fatal(err)
	}
	if after := flushed(t, pool); after == before {
		t.Error("a settlement was answered before it was flushed")
	}
}

// flushed tells up to where the log is on disk.
func flushed(t *testing.T, pool *pgxpool.Pool) (lsn string) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&lsn); err != nil {
		t.Fatal(err)
	}
	return lsn
}

// The transaction reads what a claim writes, and writes what the claim has read: if both were
// at SERIALIZABLE, one would get an error.
func TestHazard_AStoresOwnStatementConflictsWithNoSerializableTransaction(t *testing.T) {
	pool := newPool(t, "default_transaction_isolation=serializable")
	s := open(t, pool)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	var n int
	if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM onlyonce_records").Scan(&n); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, claimOf("k"))
	if _, err := tx.Exec(t.Context(), "UPDATE onlyonce_fence SET floor = floor"); err != nil {
		t.Errorf("write what the claim has read: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("commit: %v", err)
	}
}
