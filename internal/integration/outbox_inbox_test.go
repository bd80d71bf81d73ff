package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A consumer makes a row of every message.
type consumer struct {
	t     *testing.T
	store *sqlstore.Store
	db    *sql.DB
	inbox *inbox.TxInbox[*sql.Tx]
	fail  error // after the row was written
	panic any
	exit  bool                                 // the handler ends its goroutine
	also  func(context.Context, *sql.Tx) error // done besides

	mu       sync.Mutex
	poisoned []string
	away     error // of the poison queue
}

// eachEngine runs a test on every engine that has an inbox in its transactions.
func eachEngine(t *testing.T, test func(*testing.T, *sqlstore.Store, *sql.DB)) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		s, db := newSQLite(t)
		test(t, s, db)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		s, db := newPostgresSchema(t).open(t)
		test(t, s, db)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		s, db := newMySQLDatabase(t).open(t)
		test(t, s, db)
	})
}

func newConsumer(t *testing.T, s *sqlstore.Store, db *sql.DB) *consumer {
	if _, err := db.Exec("CREATE TABLE shipments (message VARCHAR(100) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	c := &consumer{t: t, store: s, db: db}
	c.inbox = inbox.NewTx(s, inbox.Config{
		Consumer: "shipping", Redelivery: time.Minute, MaxAttempts: 3,
		Poison: func(_ context.Context, m inbox.Message, cause error) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.away != nil {
				return c.away
			}
			c.poisoned = append(c.poisoned, m.ID+": "+cause.Error())
			return nil
		},
	})
	return c
}

func (c *consumer) handle(id string) (inbox.Result[string], error) {
	return inbox.HandleTx(c.t.Context(), c.inbox, inbox.Message{ID: id, Payload: []byte(id)}, func(ctx context.Context, tx *sql.Tx) (string, error) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO shipments (message) VALUES ('"+id+"')"); err != nil {
			return "", err
		}
		if c.panic != nil {
			panic(c.panic)
		}
		if c.exit {
			runtime.Goexit()
		}
		if c.also != nil {
			if err := c.also(ctx, tx); err != nil {
				return "", err
			}
		}
		return "shipped " + id, c.fail
	})
}

func (c *consumer) want(rows int) {
	c.t.Helper()
	var n int
	if err := c.db.QueryRow("SELECT count(*) FROM shipments").Scan(&n); err != nil || n != rows {
		c.t.Errorf("there are %d rows, want %d, %v", n, rows, err)
	}
}

func TestOutboxInbox_AMessageHandledInATransactionTakesEffectOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		for i := range 3 {
			r, err := c.handle("1")
			if err != nil || r.Replayed != (i > 0) || r.Value != "shipped 1" {
				t.Errorf("%+v, %v", r, err)
			}
		}
		c.want(1)
	})
}

func TestOutboxInbox_AMessageDeliveredToManyConsumersAtOnceTakesEffectOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		const messages, deliveries = 20, 8
		var all sync.WaitGroup
		for i := range messages * deliveries {
			all.Go(func() {
				for {
					r, err := c.handle(fmt.Sprint(i % messages))
					if errors.Is(err, onlyonce.ErrInFlight) {
						time.Sleep(time.Millisecond)
						continue
					}
					if err != nil || r.Poisoned != nil {
						t.Errorf("%+v, %v", r, err)
					}
					return
				}
			})
		}
		all.Wait()
		c.want(messages)
	})
}

func TestOutboxInbox_AHandlerThatFailsInATransactionLeavesNothingAndIsCounted(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		c.fail = errors.New("no stock")
		for range 2 {
			if _, err := c.handle("1"); !errors.Is(err, c.fail) {
				t.Error(err)
			}
		}
		for range 2 {
			if r, err := c.handle("1"); err != nil || r.Poisoned == nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
		c.want(0)
		if fmt.Sprint(c.poisoned) != "[1: no stock]" {
			t.Errorf("the poison queue has %q", c.poisoned)
		}
		c.fail = nil
		if r, err := c.handle("2"); err != nil || r.Poisoned != nil {
			t.Errorf("%+v, %v", r, err)
		}
		c.want(1)
	})
}

func TestOutboxInbox_AHandlerWhoseFailureIsFinalDoesNotRunAgainUntilItsMessageIsPoisoned(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		c.fail, c.away = onlyonce.Final(errors.New("no such product")), errors.New("the poison queue is away")
		for range 2 {
			if r, err := c.handle("1"); !errors.Is(err, c.away) {
				t.Errorf("%+v, %v", r, err)
			}
			c.fail = nil
		}
		c.away = nil
		for range 2 {
			if r, err := c.handle("1"); err != nil || r.Poisoned == nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
		c.want(0)
		if fmt.Sprint(c.poisoned) != "[1: no such product]" {
			t.Errorf("the poison queue has %q", c.poisoned)
		}
	})
}

func TestOutboxInbox_AHandlerThatEndsItsGoroutineInATransactionLeavesNothingAndIsCounted(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		c.exit = true
		for range 3 {
			var delivery sync.WaitGroup
			delivery.Go(func() { _, _ = c.handle("1") })
			delivery.Wait()
		}
		if r, err := c.handle("1"); err != nil || r.Poisoned == nil {
			t.Errorf("%+v, %v", r, err)
		}
		c.want(0)
		if fmt.Sprint(c.poisoned) != "[1: every attempt failed, or ended without a result; the last: the attempt's goroutine ended]" {
			t.Errorf("the poison queue has %q", c.poisoned)
		}
	})
}

func TestOutboxInbox_AHandlerThatPanicsInATransactionLeavesNothingAndIsCounted(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		c := newConsumer(t, s, db)
		c.panic = "bug"
		for range 3 {
			func() {
				defer func() {
					if p := recover(); p != "bug" {
						t.Errorf("recovered %v", p)
					}
				}()
				_, _ = c.handle("1")
			}()
		}
		if r, err := c.handle("1"); err != nil || r.Poisoned == nil {
			t.Errorf("%+v, %v", r, err)
		}
		c.want(0)
		if fmt.Sprint(c.poisoned) != "[1: panic: bug]" {
			t.Errorf("the poison queue has %q", c.poisoned)
		}
	})
}

func TestOutboxInbox_AHandlerThatEndsItsTransactionIsCounted(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx) error{"commits": (*sql.Tx).Commit, "rolls back": (*sql.Tx).Rollback} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
				c := newConsumer(t, s, db)
				c.also = func(_ context.Context, tx *sql.Tx) error { return end(tx) }
				for range 2 {
					if _, err := c.handle("1"); !errors.Is(err, onlyonce.ErrUnknown) {
						t.Errorf("got %v, want an error that says that the outcome is unknown", err)
					}
				}
				for range 2 {
					if r, err := c.handle("1"); err != nil || r.Poisoned == nil {
						t.Errorf("%+v, %v", r, err)
					}
				}
				if len(c.poisoned) != 1 || !strings.Contains(c.poisoned[0], "the transaction ended before the function did") {
					t.Errorf("the poison queue has %q", c.poisoned)
				}
			})
		})
	}
}

// The trigger ends the connection while the server executes COMMIT, as a failover does.
func TestOutboxInbox_AMessageWhoseCommitAFailoverBreaksIsNotCounted(t *testing.T) {
	s, db := newPostgresSchema(t).open(t)
	c := newConsumer(t, s, db)
	if _, err := db.Exec(`CREATE FUNCTION fail_over() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER failing_over AFTER INSERT ON shipments DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_over()`); err != nil {
		t.Fatal(err)
	}
	for range 4 { // more often than a handler may fail
		if r, err := c.handle("1"); !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if _, err := db.Exec("DROP TRIGGER failing_over ON shipments"); err != nil {
		t.Fatal(err)
	}
	if r, err := c.handle("1"); err != nil || r.Poisoned != nil || r.Attempt != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	c.want(1)
}

func TestOutboxInbox_AMessageWhoseTransactionTheDatabaseRejectsIsCounted(t *testing.T) {
	test := func(t *testing.T, s *sqlstore.Store, db *sql.DB, handler func(context.Context, *sql.Tx) (string, error)) {
		c := newConsumer(t, s, db)
		handle := func() (inbox.Result[string], error) {
			return inbox.HandleTx(t.Context(), c.inbox, inbox.Message{ID: "1", Payload: []byte("1")}, handler)
		}
		for range 2 {
			if _, err := handle(); err == nil || errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("%v, want an error that does not blame the database", err)
			}
		}
		for range 2 {
			if r, err := handle(); err != nil || r.Poisoned == nil {
				t.Errorf("%+v, %v", r, err)
			}
		}
		if len(c.poisoned) != 1 || strings.Contains(c.poisoned[0], onlyonce.ErrUnavailable.Error()) {
			t.Errorf("the poison queue has %q", c.poisoned)
		}
	}
	t.Run("PostgreSQL, by a deferred constraint", func(t *testing.T) {
		t.Parallel()
		s, db := newPostgresSchema(t).open(t)
		if _, err := db.Exec("CREATE TABLE parent (id integer PRIMARY KEY); CREATE TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"); err != nil {
			t.Fatal(err)
		}
		test(t, s, db, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO child (id) VALUES (1)")
			return "", err
		})
	})
	t.Run("PostgreSQL, because a statement failed before", func(t *testing.T) {
		t.Parallel()
		s, db := newPostgresSchema(t).open(t)
		test(t, s, db, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, _ = tx.ExecContext(ctx, "SELECT 1/0")
			return "", nil
		})
	})
	t.Run("PostgreSQL, because it was idle for too long", func(t *testing.T) {
		t.Parallel()
		s, db := newPostgresSchema(t).open(t)
		test(t, s, db, func(ctx context.Context, tx *sql.Tx) (string, error) {
			var pid int
			err := tx.QueryRowContext(ctx, limitIdle).Scan(&pid)
			waitForEnd(t, db, pid)
			return "", err
		})
	})
	t.Run("SQLite, by a deferred constraint", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "records.db")
		openSQLite(t, file)
		db, err := sql.Open("sqlite", sqliteDSN(file)+"&_pragma=foreign_keys(1)")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE parent (id integer PRIMARY KEY); CREATE TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"); err != nil {
			t.Fatal(err)
		}
		test(t, s, db, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO child (id) VALUES (1)")
			return "", err
		})
	})
	t.Run("MySQL, because the result is too large", func(t *testing.T) {
		t.Parallel()
		s, db := newMySQLDatabase(t).open(t)
		var longest int
		if err := db.QueryRow("SELECT @@max_allowed_packet").Scan(&longest); err != nil {
			t.Fatal(err)
		}
		large := strings.Repeat("x", longest)
		test(t, s, db, func(context.Context, *sql.Tx) (string, error) { return large, nil })
	})
}

// limitIdle lets a transaction be idle for a moment, and returns the process ID of its connection.
const limitIdle = "SELECT pg_backend_pid() FROM set_config('idle_in_transaction_session_timeout', '1ms', true)"

// waitForEnd returns when PostgreSQL has ended a connection.
func waitForEnd(t *testing.T, db *sql.DB, pid int) {
	t.Helper()
	eventually(t, "PostgreSQL ends the connection", func() bool {
		var there bool
		if err := db.QueryRow("SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&there); err != nil {
			t.Error(err)
		}
		return !there
	})
}

func TestOutboxInbox_OnlyARejectionOfPgxsTransactionIsCounted(t *testing.T) {
	s, db := newPgxSchema(t)
	if _, err := db.Exec(`CREATE TABLE parent (id integer PRIMARY KEY); CREATE TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE failing (id integer);
		CREATE FUNCTION fail_over() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER failing_over AFTER INSERT ON failing DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_over()`); err != nil {
		t.Fatal(err)
	}
	in := inbox.NewTx(s, inbox.Config{
		Consumer: "shipping", Redelivery: time.Minute, MaxAttempts: 2,
		Poison: func(context.Context, inbox.Message, error) error { return nil },
	})
	for name, c := range map[string]struct {
		handler func(context.Context, pgx.Tx) error
		counted bool
	}{
		"a deferred constraint": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO child (id) VALUES (1)")
			return err
		}, true},
		"a statement that failed": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		}, true},
		"a transaction that is idle for too long": {func(ctx context.Context, tx pgx.Tx) error {
			var pid int
			err := tx.QueryRow(ctx, limitIdle).Scan(&pid)
			waitForEnd(t, db, pid)
			return err
		}, true},
		"a failover": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO failing (id) VALUES (1)")
			return err
		}, false},
		"its own commit": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "COMMIT")
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range 4 {
				r, err := inbox.HandleTx(t.Context(), in, inbox.Message{ID: name}, func(ctx context.Context, tx pgx.Tx) (string, error) {
					return "", c.handler(ctx, tx)
				})
				if away := errors.Is(err, onlyonce.ErrUnavailable); away == c.counted || (r.Poisoned != nil) != (c.counted && n > 0) {
					t.Errorf("attempt %d: %+v, %v", n+1, r, err)
				}
			}
		})
	}
}
