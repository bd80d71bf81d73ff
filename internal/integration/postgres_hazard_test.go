package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// waits waits until so many sessions with a name wait for a lock.
func waits(t *testing.T, db *sql.DB, name string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d sessions wait for a lock", want), func() bool {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == want
	})
}

func TestPostgreSQL_AClaimThatWaitedForALockPastTheLeaseTakesOver(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	waiting := openOn(t, schema.pool(t, "application_name="+schema.name))
	c := serverClaim("k")
	c.Lease = 300 * time.Millisecond
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	// The lease has not lapsed in anyone's eyes when the taker begins to wait: its
	// holder's transaction, which renews nothing, has the row.
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("SELECT 1 FROM onlyonce_records FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease lapses", func() bool {
		was, err := s.Lookup(t.Context(), c.ID)
		return err == nil && was.LeaseLeft <= 0
	})
	if _, err := tx.Exec("UPDATE onlyonce_records SET lease_until = onlyonce_now() + 300000"); err != nil {
		t.Fatal(err)
	}
	taker := serverClaim("k")
	taker.TakeUnknown = true
	var took onlyonce.Record
	var took2 error
	var wg sync.WaitGroup
	wg.Go(func() { took, took2 = waiting.Claim(t.Context(), taker) })
	waits(t, db, schema.name, 1)
	var left int64
	eventually(t, "the renewed lease lapses too", func() bool {
		if err := tx.QueryRow("SELECT lease_until - onlyonce_now() FROM onlyonce_records").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left < 0
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if took2 != nil || took.Owner != taker.Owner || took.Fence <= r.Fence || took.Attempt != 2 {
		t.Errorf("the claim got %+v and error %v", took, took2)
	}
}

// The renewal lapses while the claim waits for the row, so that owner, fence and
// state are what the claim has seen.
func TestPostgreSQL_AClaimThatWaitedForARenewalKeepsItsSteps(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	waiting := schema.pool(t, "application_name="+schema.name)
	pool, err := pgxpool.New(t.Context(), schema.with(t, "application_name="+schema.name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	pgx, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pgx.Close() })
	for key, store := range map[string]onlyonce.Store{"sqlstore": openOn(t, waiting), "pgxstore": pgx} {
		t.Run(key, func(t *testing.T) {
			c := serverClaim(key)
			c.Lease = time.Millisecond
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			lapses := func() {
				eventually(t, "the lease lapses", func() bool {
					was, err := s.Lookup(t.Context(), c.ID)
					return err == nil && was.LeaseLeft <= 0
				})
			}
			lapses()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec("SELECT 1 FROM onlyonce_records WHERE owner = $1 FOR UPDATE", []byte(c.Owner)); err != nil {
				t.Fatal(err)
			}
			taker := serverClaim(key)
			taker.TakeUnknown = true
			var took onlyonce.Record
			var failed error
			var wg sync.WaitGroup
			wg.Go(func() { took, failed = store.Claim(t.Context(), taker) })
			waits(t, db, schema.name, 1)
			hold := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			if err := s.WithTx(tx).Renew(t.Context(), hold, time.Millisecond, map[string][]byte{"charge": []byte("1")}); err != nil {
				t.Fatal(err)
			}
			var left int64
			eventually(t, "the renewed lease lapses too", func() bool {
				if err := tx.QueryRow("SELECT lease_until - onlyonce_now() FROM onlyonce_records WHERE owner = $1", []byte(c.Owner)).Scan(&left); err != nil {
					t.Fatal(err)
				}
				return left < 0
			})
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if failed != nil || took.Owner != taker.Owner || string(took.Steps["charge"]) != "1" {
				t.Errorf("the claim got %+v and error %v", took, failed)
			}
			if r, err := s.Lookup(t.Context(), c.ID); err != nil || string(r.Steps["charge"]) != "1" {
				t.Errorf("the record is %+v, %v", r, err)
			}
		})
	}
}

func TestPostgreSQL_ADuplicateInAnotherProcessIsRejectedAtOnce(t *testing.T) {
	type place struct {
		name string
		open func(t *testing.T) (*sqlstore.Store, *sqlstore.Store)
	}
	for _, p := range []place{
		{"PostgreSQL", func(t *testing.T) (*sqlstore.Store, *sqlstore.Store) {
			schema := newPostgresSchema(t)
			a, _ := schema.open(t)
			b, _ := schema.open(t)
			return a, b
		}},
		{"MySQL", func(t *testing.T) (*sqlstore.Store, *sqlstore.Store) {
			d := newMySQLDatabase(t)
			a, _ := d.open(t)
			b, _ := d.open(t)
			return a, b
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			a, b := p.open(t)
			c := serverClaim("k")
			never := func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				t.Error("the duplicate ran")
				return done("twice"), nil
			}
			r, err := a.RunTx(t.Context(), c, func(ctx context.Context, _ *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				atOnce, cancel := context.WithTimeout(ctx, answerLimit/2) // what waits for this function waits for ever
				defer cancel()
				dup := serverClaim("k")
				r, err := b.RunTx(atOnce, dup, never)
				if err != nil || r.State != onlyonce.StateProcessing || r.Owner == dup.Owner || r.LeaseLeft <= 0 {
					t.Errorf("the duplicate got %+v and error %v", r, err)
				}
				if r, err := b.RunTx(ctx, serverClaim("another"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
					return done("another"), nil
				}); err != nil || r.State != onlyonce.StateCompleted {
					t.Errorf("another command got %+v and error %v", r, err)
				}
				return done("once"), nil
			})
			if err != nil || r.Owner != c.Owner {
				t.Fatalf("run got %+v and error %v", r, err)
			}
			if r, err := b.RunTx(t.Context(), serverClaim("k"), never); err != nil || string(r.Result.Body) != "once" {
				t.Errorf("the repeat got %+v and error %v", r, err)
			}
		})
	}
}

// The locks of commands are the database's, and not a schema's.
func TestPostgreSQL_ACommandDoesNotWaitForItsNamesakeInAnotherSchema(t *testing.T) {
	run := func(then func()) {
		s, _ := newPostgresSchema(t).open(t)
		r, err := s.RunTx(t.Context(), serverClaim("k"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
			then()
			return done("made"), nil
		})
		if err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("run got %+v and error %v", r, err)
		}
	}
	run(func() { run(func() {}) })
}

// The other schema has the store's tables, too: what is recorded there is not found
// when the command comes again.
func TestPostgreSQL_AFunctionThatSetsAnotherSearchPathCommitsNothing(t *testing.T) {
	here, there := newPostgresSchema(t), newPostgresSchema(t)
	s, _ := here.open(t)
	elsewhere, own := there.open(t)
	there.tx(t, elsewhere, own)
	pool, err := pgxpool.New(t.Context(), here.with(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	x, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	const insert = "INSERT INTO own VALUES ('row')"
	leave := "SET LOCAL search_path = " + there.name
	bySQL := func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) {
		_, err := tx.ExecContext(ctx, leave+"; "+insert)
		return done("made"), err
	}
	byPgx := func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error) {
		_, err := tx.Exec(ctx, leave+"; "+insert)
		return done("made"), err
	}
	for name, run := range map[string]func(c onlyonce.Claim, h onlyonce.Hold) error{
		"sqlstore, RunTx": func(c onlyonce.Claim, _ onlyonce.Hold) error {
			_, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return bySQL(ctx, tx)
			})
			return err
		},
		"sqlstore, SettleTx": func(_ onlyonce.Claim, h onlyonce.Hold) error { return s.SettleTx(t.Context(), h, bySQL) },
		"pgxstore, RunTx": func(c onlyonce.Claim, _ onlyonce.Hold) error {
			_, err := x.RunTx(t.Context(), c, func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				return byPgx(ctx, tx)
			})
			return err
		},
		"pgxstore, SettleTx": func(_ onlyonce.Claim, h onlyonce.Hold) error { return x.SettleTx(t.Context(), h, byPgx) },
	} {
		t.Run(name, func(t *testing.T) {
			c := serverClaim(name)
			var h onlyonce.Hold
			if strings.HasSuffix(name, "SettleTx") {
				r, err := s.Claim(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				h = onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			}
			if err := run(c, h); err == nil || !strings.Contains(err.Error(), "search_path") {
				t.Errorf("got error %v", err)
			}
			if r, err := elsewhere.Lookup(t.Context(), c.ID); !errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("the other schema has %+v, error %v", r, err)
			}
			var rows int
			if err := own.QueryRow("SELECT count(*) FROM own").Scan(&rows); rows != 0 || err != nil {
				t.Errorf("%d rows were committed, error %v", rows, err)
			}
			if r, err := s.Lookup(t.Context(), c.ID); err == nil && r.State == onlyonce.StateCompleted {
				t.Errorf("the command is %+v", r)
			}
		})
	}
}

func TestPostgreSQL_AFunctionThatTheDatabaseUndoesRunsAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		for _, text := range []string{
			"CREATE TABLE counter (id INT PRIMARY KEY, n INT NOT NULL)",
			"INSERT INTO counter (id, n) VALUES (1, 0), (2, 0)",
		} {
			if _, err := db.Exec(text); err != nil {
				t.Fatal(err)
			}
		}
		// Each has one row, and then wants the other's.
		ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
		defer cancel()
		has := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		var runs atomic.Int64
		crowd(2, func(i int) {
			both := sync.OnceFunc(func() {
				close(has[i])
				select {
				case <-has[1-i]:
				case <-ctx.Done():
				}
			})
			r, err := s.RunTx(ctx, serverClaim(fmt.Sprint(i)), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				runs.Add(1)
				for _, id := range []int{1 + i, 2 - i} {
					if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = n + 1 WHERE id = %d", id)); err != nil {
						return onlyonce.Settlement{State: onlyonce.StateFailed, Error: err.Error(), Keep: time.Hour}, err
					}
					both()
				}
				return done("made"), nil
			})
			if err != nil || r.State != onlyonce.StateCompleted {
				t.Errorf("run got %+v and error %v", r, err)
			}
		})
		var sum int64
		if err := db.QueryRow("SELECT sum(n) FROM counter").Scan(&sum); err != nil {
			t.Fatal(err)
		}
		if sum != 4 || runs.Load() < 3 {
			t.Errorf("the counters say %d for two commands, which ran %d times", sum, runs.Load())
		}
	})
}

func TestPostgreSQL_AFunctionThatHidesTheDatabasesErrorCompletesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		if _, err := db.Exec("CREATE TABLE own (n INT)"); err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]string{
			"rolls back": "ROLLBACK", "commits": "COMMIT", "commits and makes a savepoint like the store's": "COMMIT; SAVEPOINT onlyonce",
		} {
			r, err := s.RunTx(t.Context(), serverClaim(name), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
				for _, text := range strings.Split("INSERT INTO own (n) VALUES (1); "+end+"; INSERT INTO own (n) VALUES (2)", "; ") {
					if _, err := tx.ExecContext(ctx, text); err != nil {
						return onlyonce.Settlement{}, err
					}
				}
				return done("half"), nil
			})
			if err == nil {
				t.Errorf("a function that %s by itself got %+v", name, r)
			}
			if r, err := s.Lookup(t.Context(), serverClaim(name).ID); err == nil && r.State == onlyonce.StateCompleted {
				t.Errorf("a function that %s by itself left %+v", name, r)
			}
		}
	})
}

func TestPostgreSQL_ATransactionOfTheCallersAtAnyLevelMustBeginAgain(t *testing.T) {
	schema := newPostgresSchema(t)
	s, db := schema.open(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		key := level.String()
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("SELECT 1 FROM onlyonce_records"); err != nil {
			t.Fatal(err)
		}
		first := serverClaim(key)
		if _, err := s.Claim(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		r, err := s.WithTx(tx).Claim(t.Context(), serverClaim(key))
		switch {
		case level == sql.LevelReadCommitted:
			if err != nil || r.Owner != first.Owner {
				t.Errorf("at %v the claim got %+v and error %v", level, r, err)
			}
		case !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), "run it again"):
			t.Errorf("at %v the claim got %+v and error %v", level, r, err)
		default:
			if _, err := s.WithTx(tx).Lookup(t.Context(), first.ID); err == nil || !strings.Contains(err.Error(), "roll it back") {
				t.Errorf("at %v, after an error, lookup got error %v", level, err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

func TestPostgreSQL_ACommitWaitsForTheDiskWhateverThePoolSays(t *testing.T) {
	s, db := newPostgresSchema(t).open(t, "synchronous_commit=off")
	for name, f := range map[string]func(in onlyonce.Store) error{
		"claim": func(in onlyonce.Store) error {
			_, err := in.Claim(t.Context(), serverClaim("new"))
			return err
		},
		"settle": func(in onlyonce.Store) error {
			c := serverClaim("settled")
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				return err
			}
			return in.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
		},
		"renew": func(in onlyonce.Store) error {
			c := serverClaim("renewed")
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				return err
			}
			return in.Renew(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, time.Minute, map[string][]byte{"charge": []byte("1")})
		},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := f(s.WithTx(tx)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var setting string
		if err := tx.QueryRow("SHOW synchronous_commit").Scan(&setting); err != nil || setting != "on" {
			t.Errorf("the transaction of a %s has synchronous_commit %s and error %v", name, setting, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	_, err := s.RunTx(t.Context(), serverClaim("run"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		_, err := tx.ExecContext(ctx, `
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO settings VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TABLE settings (at_commit text);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON onlyonce_records DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION seen()`)
		return done("made"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	var setting string
	if err := db.QueryRow("SELECT at_commit FROM settings").Scan(&setting); err != nil || setting != "on" {
		t.Errorf("RunTx committed with synchronous_commit %q and error %v", setting, err)
	}
}

func TestPostgreSQL_ClaimsThatLoseLeaveNothingToVacuum(t *testing.T) {
	s, db := newPostgresSchema(t).open(t)
	if _, err := s.Claim(t.Context(), serverClaim("k")); err != nil {
		t.Fatal(err)
	}
	size := func() (pages int64) {
		if err := db.QueryRow("SELECT pg_relation_size('onlyonce_records')").Scan(&pages); err != nil {
			t.Fatal(err)
		}
		return pages
	}
	before := size()
	other := openOn(t, db)
	for range 500 {
		if r, err := other.Claim(t.Context(), serverClaim("k")); err != nil || r.State != onlyonce.StateProcessing {
			t.Fatalf("claim got %+v and error %v", r, err)
		}
	}
	if after := size(); after != before {
		t.Errorf("the table grew from %d to %d bytes", before, after)
	}
}

func TestPostgreSQL_ATimeoutOfTheServersIsReportedAsOne(t *testing.T) {
	schema := newPostgresSchema(t)
	_, db := schema.open(t)
	s := openOn(t, schema.pool(t, "lock_timeout=100ms"))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := s.WithTx(tx).Claim(t.Context(), serverClaim("k")); err != nil {
		t.Fatal(err)
	}
	_, err = s.Claim(t.Context(), serverClaim("k"))
	if !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), "raise them") {
		t.Errorf("the claim got error %v", err)
	}
}

func TestPostgreSQL_ConnectionsThatConvertTextsAreRejected(t *testing.T) {
	schema := newPostgresSchema(t)
	schema.open(t)
	for encoding, rejected := range map[string]bool{"LATIN1": true, "WIN1252": true, "SQL_ASCII": false, "UTF8": false} {
		s, err := sqlstore.Open(t.Context(), schema.pool(t, "client_encoding="+encoding), sqlstore.Config{})
		if rejected != (err != nil && strings.Contains(err.Error(), "client_encoding is "+encoding)) {
			t.Errorf("open with client_encoding %s got error %v", encoding, err)
		}
		if err == nil {
			s.Close()
		}
	}
}
