package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A fencedStore is a store whose fences must grow even if the server's clock is moved.
type fencedStore[TX any] interface {
	onlyonce.TxStore[TX]
	onlyonce.Purger
}

// newPgxSchema opens a pgxstore and a pool on a schema of the test's own.
func newPgxSchema(t *testing.T, settings ...string) (fencedStore[pgx.Tx], *sql.DB) {
	t.Helper()
	schema := newPostgresSchema(t)
	s, _ := openPgx(t, ownDatabase{driver: "pgx", dsn: schema.with(t, settings...)})
	return s, schema.pool(t)
}

// A floor that is ahead of the clock is what a clock that was set back leaves:
// the same fence is given again and again unless the store keeps those it gave.
func TestServerClock_AFenceThatAFunctionSawIsNotIssuedAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) { keepsFences[*sql.Tx](t, s, db) })
	t.Run("pgxstore", func(t *testing.T) {
		t.Parallel()
		s, db := newPgxSchema(t)
		keepsFences(t, s, db)
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		s, db := newSQLite(t)
		keepsFences[*sql.Tx](t, s, db)
	})
}

func TestServerClock_AFenceThatAFunctionSawIsKeptAlthoughConnectionsBreak(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, db *sql.DB, h *hook) {
		if _, err := db.Exec(fmt.Sprintf("UPDATE onlyonce_fence SET floor = %d", time.Now().Add(time.Hour).UnixMicro())); err != nil {
			t.Fatal(err)
		}
		var saw int64
		own := errors.New("no")
		if _, err := s.RunTx(t.Context(), serverClaim("k"), func(_ context.Context, _ *sql.Tx, r onlyonce.Record) (onlyonce.Settlement, error) {
			saw = r.Fence
			h.fail(4, "onlyonce_") // the row for the fence and the floor, twice
			return onlyonce.Settlement{}, own
		}); !errors.Is(err, own) {
			t.Errorf("run got error %v", err)
		}
		if !h.met() {
			t.Error("no connection broke")
		}
		if r, err := other.Claim(t.Context(), serverClaim("k")); err != nil || r.Fence <= saw {
			t.Errorf("after fence %d, claim got %+v and error %v", saw, r, err)
		}
	})
}

func keepsFences[TX any](t *testing.T, s fencedStore[TX], db *sql.DB) {
	own := errors.New("no")
	failed := onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no", Keep: time.Hour}
	rejectUnstorable(t, db)
	if _, err := db.Exec(fmt.Sprintf("UPDATE onlyonce_fence SET floor = %d", time.Now().Add(time.Hour).UnixMicro())); err != nil {
		t.Fatal(err)
	}
	type end = func(c onlyonce.Claim) (onlyonce.Settlement, error)
	ends := map[string]end{
		"an error":     func(onlyonce.Claim) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, own },
		"a panic":      func(onlyonce.Claim) (onlyonce.Settlement, error) { panic("a bug") },
		"Goexit":       func(onlyonce.Claim) (onlyonce.Settlement, error) { runtime.Goexit(); return failed, nil },
		"a failure":    func(onlyonce.Claim) (onlyonce.Settlement, error) { return failed, own },
		"a release":    func(onlyonce.Claim) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil },
		"a settlement": func(onlyonce.Claim) (onlyonce.Settlement, error) { return failed, nil },
		"a value that does not fit": func(onlyonce.Claim) (onlyonce.Settlement, error) {
			s := failed
			s.Result.Ref = unstorable
			return s, nil
		},
	}
	for name, end := range ends {
		for _, retried := range []bool{false, true} {
			key := fmt.Sprint(name, retried)
			claim := func() onlyonce.Claim {
				c := serverClaim(key)
				c.RetryFailed = true
				return c
			}
			last := int64(0)
			if retried {
				r, err := s.Claim(t.Context(), claim())
				if err == nil {
					last, err = r.Fence, s.Settle(t.Context(), holdOf(r), failed)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				c := claim()
				ended := make(chan struct{})
				go func() { // which may panic
					defer close(ended)
					defer func() { _ = recover() }()
					_, _ = s.RunTx(t.Context(), c, func(_ context.Context, _ TX, r onlyonce.Record) (onlyonce.Settlement, error) {
						if r.Fence <= last {
							t.Errorf("%s: after fence %d, the function got %d", key, last, r.Fence)
						}
						last = r.Fence
						return end(c)
					})
				}()
				<-ended
			}
			if r, err := s.Claim(t.Context(), claim()); err != nil || r.State != onlyonce.StateProcessing || r.Fence <= last {
				t.Errorf("%s: after fence %d, claim got %+v and error %v", key, last, r, err)
			}
		}
	}
}

func TestServerClock_ARecordThatChangesUnderAFunctionRunsItAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, _ *sql.DB) { runsAgain[*sql.Tx](t, s) })
	t.Run("pgxstore", func(t *testing.T) {
		t.Parallel()
		s, _ := newPgxSchema(t)
		runsAgain(t, s)
	})
}

func runsAgain[TX any](t *testing.T, s fencedStore[TX]) {
	failed := onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no", Keep: time.Hour}
	c := serverClaim("k")
	c.RetryFailed = true
	rival := func() onlyonce.Record {
		c.Owner = owner()
		r, err := s.Claim(t.Context(), c)
		if err == nil {
			err = s.Settle(t.Context(), holdOf(r), failed)
		}
		if err != nil {
			t.Error(err)
		}
		return r
	}
	rival()
	var fences []int64
	again := c
	again.Owner = owner()
	r, err := s.RunTx(t.Context(), again, func(_ context.Context, _ TX, r onlyonce.Record) (onlyonce.Settlement, error) {
		fences = append(fences, r.Fence)
		if len(fences) < 3 {
			fences = append(fences, rival().Fence)
		}
		return done("made"), nil
	})
	if err != nil || r.State != onlyonce.StateCompleted || r.Owner != again.Owner || r.Attempt != 3 || len(fences) != 3 {
		t.Fatalf("%+v, %v, after the fences %v", r, err, fences)
	}
	for i, fence := range fences[1:] {
		if fence <= fences[i] {
			t.Errorf("the fences were %v", fences)
		}
	}
}

// A purge raises the floor for good: that must not undo a transaction that chose its fence before.
func TestServerClock_APurgeUndoesNoTransaction(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) { outlivesPurges[*sql.Tx](t, s) })
	t.Run("pgxstore", func(t *testing.T) {
		t.Parallel()
		s, _ := newPgxSchema(t)
		outlivesPurges(t, s)
	})
}

func outlivesPurges[TX any](t *testing.T, s fencedStore[TX]) {
	brief := func(key string) onlyonce.Record {
		t.Helper()
		r, err := s.Claim(t.Context(), serverClaim(key))
		if err == nil {
			st := done("briefly")
			st.Keep = time.Millisecond
			err = s.Settle(t.Context(), holdOf(r), st)
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the record expires", func() bool {
			_, err := s.Lookup(t.Context(), r.ID)
			return errors.Is(err, onlyonce.ErrNotFound)
		})
		return r
	}
	runs := 0
	first := brief("expired")
	r, err := s.RunTx(t.Context(), serverClaim("expired"), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
		runs++
		brief("another")
		if n, err := s.Purge(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("purged %d, %v; want only the record that no transaction replaces", n, err)
		}
		return done("anew"), nil
	})
	if err != nil || runs != 1 || r.State != onlyonce.StateCompleted || r.Fence <= first.Fence {
		t.Errorf("after fence %d and %d runs: %+v, %v", first.Fence, runs, r, err)
	}
	var second onlyonce.Record
	runs = 0
	r, err = s.RunTx(t.Context(), serverClaim("new"), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
		if runs++; runs == 1 {
			second = brief("new")
			if n, err := s.Purge(t.Context(), 10); err != nil || n != 0 {
				t.Errorf("purged %d, %v: a fence is gone that the running transaction must meet", n, err)
			}
		}
		return done("anew"), nil
	})
	if err != nil || r.State != onlyonce.StateCompleted || r.Fence <= second.Fence {
		t.Errorf("after fence %d: %+v, %v", second.Fence, r, err)
	}
}

// At REPEATABLE READ a transaction sees the floor of its snapshot.
func TestServerClock_AClaimInATransactionDoesNotGoByAnOldFloor(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	x, pool := openPgx(t, ownDatabase{driver: "pgx", dsn: schema.with(t)})
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for name, begin := range map[string]func() (in onlyonce.Store, end func()){
			"sqlstore": func() (onlyonce.Store, func()) {
				tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec("SELECT 1 FROM onlyonce_records"); err != nil {
					t.Fatal(err)
				}
				return s.WithTx(tx), func() { _ = tx.Rollback() }
			},
			"pgxstore": func() (onlyonce.Store, func()) {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: map[sql.IsolationLevel]pgx.TxIsoLevel{
					sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
				}[level]})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), "SELECT 1 FROM onlyonce_records"); err != nil {
					t.Fatal(err)
				}
				return x.WithTx(tx), func() { _ = tx.Rollback(context.Background()) }
			},
		} {
			t.Run(fmt.Sprint(name, " ", level), func(t *testing.T) {
				in, end := begin()
				defer end()
				var floor int64
				if err := db.QueryRow("UPDATE onlyonce_fence SET floor = greatest(floor, onlyonce_now()) + 3600000000 RETURNING floor").Scan(&floor); err != nil {
					t.Fatal(err)
				}
				r, err := in.Claim(t.Context(), serverClaim(name+level.String()))
				switch {
				case err != nil && level != sql.LevelReadCommitted: // it has to be run again
				case err != nil || r.Fence <= floor:
					t.Errorf("after the floor %d, claim got %+v and error %v", floor, r, err)
				}
			})
		}
	}
}

// The call that gave the fence may have been slow, and nobody got its response.
func TestServerClock_AClaimThatIsRepeatedIsAboveTheFloor(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) { repeatsAboveTheFloor(t, s, openOn(t, db), db) })
	t.Run("pgxstore", func(t *testing.T) {
		t.Parallel()
		s, db := newPgxSchema(t)
		repeatsAboveTheFloor(t, openOn(t, db), s, db)
	})
}

func repeatsAboveTheFloor(t *testing.T, first, again onlyonce.Store, db *sql.DB) {
	t.Helper()
	c := serverClaim("k")
	r, err := first.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.Claim(t.Context(), c); err != nil || same.Owner != c.Owner || same.Fence != r.Fence {
		t.Errorf("claimed with fence %d, and then got %+v and error %v", r.Fence, same, err)
	}
	floor := r.Fence + time.Hour.Microseconds()
	if _, err := db.Exec(fmt.Sprintf("UPDATE onlyonce_fence SET floor = %d", floor)); err != nil {
		t.Fatal(err)
	}
	higher, err := again.Claim(t.Context(), c)
	if err != nil || higher.Owner != c.Owner || higher.Fence <= floor {
		t.Errorf("after the floor rose to %d, claim got %+v and error %v", floor, higher, err)
	}
	if err := again.Settle(t.Context(), holdOf(higher), done("made")); err != nil {
		t.Error(err)
	}
}

// TestServerClock_AClaimWhoseFenceIsRaisedReturnsWhenItsRecordWasCreated lets the floor rise while
// each claim is written, alone and in groups.
func TestServerClock_AClaimWhoseFenceIsRaisedReturnsWhenItsRecordWasCreated(t *testing.T) {
	s, db := newPostgresSchema(t).open(t)
	for _, text := range []string{
		"CREATE FUNCTION rise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.06); UPDATE onlyonce_fence SET floor = greatest(floor, onlyonce_now()) + 3600000000; RETURN NULL; END $$",
		"CREATE TRIGGER rise BEFORE INSERT ON onlyonce_records FOR EACH STATEMENT EXECUTE FUNCTION rise()",
	} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	var claims sync.WaitGroup
	for i := range 48 {
		claims.Go(func() {
			c := serverClaim(fmt.Sprint(i))
			r, err := s.Claim(t.Context(), c)
			if err != nil || r.Owner != c.Owner {
				t.Errorf("claim %d got %+v and error %v", i, r, err)
				return
			}
			if stored, err := s.Lookup(t.Context(), c.ID); err != nil || !stored.CreatedAt.Equal(r.CreatedAt) || stored.Fence != r.Fence {
				t.Errorf("claim %d tells fence %d and creation at %v; it is %d and %v, error %v", i, r.Fence, r.CreatedAt, stored.Fence, stored.CreatedAt, err)
			}
		})
	}
	claims.Wait()
}

// A claim was slow, so that its fence is compared with the floor after its row was written, and
// the server rejects the higher fence.
func TestServerClock_AClaimThatWroteItsRowDoesNotSayThatNothingHappened(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		schema := newPostgresSchema(t)
		_, direct := schema.open(t)
		db, h := hookedPostgres(t, schema)
		releasesItsRow(t, db, direct, h,
			"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.06); RETURN NEW; END $$",
			"CREATE TRIGGER slow BEFORE INSERT ON onlyonce_records FOR EACH ROW EXECUTE FUNCTION slow()",
			"CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'read-only' USING ERRCODE = '25006'; END $$",
			"CREATE TRIGGER reject BEFORE UPDATE ON onlyonce_records FOR EACH ROW WHEN (NEW.fence <> OLD.fence) EXECUTE FUNCTION reject()")
	})
	t.Run("MySQL", func(t *testing.T) {
		d := newMySQLDatabase(t)
		_, direct := d.open(t)
		db, h := hookedMySQL(t, d)
		releasesItsRow(t, db, direct, h,
			"CREATE TRIGGER slow BEFORE INSERT ON onlyonce_records FOR EACH ROW DO SLEEP(0.06)",
			"CREATE TRIGGER reject BEFORE UPDATE ON onlyonce_records FOR EACH ROW IF NEW.fence <> OLD.fence THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290, MESSAGE_TEXT = 'read-only'; END IF")
	})
}

func releasesItsRow(t *testing.T, db, direct *sql.DB, h *hook, triggers ...string) {
	t.Helper()
	s := openOn(t, db)
	for _, text := range triggers {
		if _, err := direct.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	h.once("INSERT INTO", func() {
		h.once("SELECT floor FROM", func() {
			if _, err := direct.Exec("UPDATE onlyonce_fence SET floor = (SELECT max(fence) FROM onlyonce_records) + 3600000000"); err != nil {
				t.Error(err)
			}
		})
	})
	c := serverClaim("k")
	if r, err := s.Claim(t.Context(), c); err == nil || errors.Is(err, onlyonce.ErrUnavailable) || !h.met() {
		t.Errorf("claimed %+v, error %v", r, err)
	}
	if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.Owner != c.Owner {
		t.Fatalf("the record is %+v, error %v", r, err)
	}
	if r, err := s.Claim(t.Context(), c); err == nil || errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("the repeated claim got %+v, error %v", r, err)
	}
}

func TestServerClock_AFunctionWhoseConnectionBreaksIsRecordedAsFailed(t *testing.T) {
	kill := func(text string) func(ctx context.Context, tx *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		s, _ := newPostgresSchema(t).open(t)
		recordsBrokenFunctions(t, s, kill("SELECT pg_terminate_backend(pg_backend_pid())"))
	})
	t.Run("MySQL", func(t *testing.T) {
		s, _ := newMySQLDatabase(t).open(t)
		recordsBrokenFunctions(t, s, kill("KILL CONNECTION_ID()"))
	})
	t.Run("pgxstore", func(t *testing.T) {
		s, _ := newPgxSchema(t)
		recordsBrokenFunctions(t, s, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		})
	})
}

func recordsBrokenFunctions[TX any](t *testing.T, s fencedStore[TX], kill func(context.Context, TX) error) {
	c := serverClaim("k")
	_, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx TX, _ onlyonce.Record) (onlyonce.Settlement, error) {
		err := kill(ctx, tx)
		if err == nil {
			t.Error("the connection is still there")
		}
		return onlyonce.Settlement{State: onlyonce.StateFailed, Error: "the connection broke", Final: true, Keep: time.Hour}, err
	})
	if err == nil {
		t.Error("run returned no error")
	}
	if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.State != onlyonce.StateFailed || !r.Final || r.Owner != c.Owner {
		t.Errorf("the record is %+v with error %v", r, err)
	}
}
