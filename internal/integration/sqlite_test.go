package integration

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// sqliteDSN opens a file the way a program would.
func sqliteDSN(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)"
}

func openSQLiteDB(t testing.TB, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", sqliteDSN(file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// newSQLite returns a store on a new file.
func newSQLite(t testing.TB) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	return openSQLite(t, filepath.Join(t.TempDir(), "records.db"))
}

func openSQLite(t testing.TB, file string) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	db := openSQLiteDB(t, file)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, db
}

// newSQLiteTx returns a store on a file that has a table of the caller's.
func newSQLiteTx(t *testing.T, file string) (storetest.Tx[*sql.Tx], *sql.DB) {
	s, db := openSQLite(t, file)
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS own (name TEXT NOT NULL) STRICT; CREATE INDEX IF NOT EXISTS own_name ON own (name)"); err != nil {
		t.Fatal(err)
	}
	return storetest.Tx[*sql.Tx]{
		Store: s,
		Insert: func(ctx context.Context, tx *sql.Tx, row string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES (?)", row)
			return err
		},
		Count: func(ctx context.Context, row string) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT count(*) FROM own WHERE name = ?", row).Scan(&n)
			return n, err
		},
		Rollback: (*sql.Tx).Rollback,
		Commit:   (*sql.Tx).Commit,
	}, db
}

// Each statement would be committed by itself.
func TestSQLite_NothingIsWrittenInATransactionThatSQLiteHasRolledBack(t *testing.T) {
	s, db := newSQLite(t)
	if _, err := db.Exec("CREATE TABLE own (name TEXT PRIMARY KEY) STRICT; INSERT INTO own VALUES ('a')"); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(*sql.Tx) error{
		"Append": func(tx *sql.Tx) error { return s.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"}) },
		"Claim": func(tx *sql.Tx) error {
			_, err := s.WithTx(tx).Claim(t.Context(), serverClaim("k"))
			return err
		},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("INSERT OR ROLLBACK INTO own VALUES ('a')"); err == nil {
			t.Fatal("the row is there twice")
		}
		if err := write(tx); err == nil {
			t.Errorf("%s succeeded in a transaction that had ended", name)
		}
		_ = tx.Rollback() // there is none
	}
	if lag, err := s.Outbox().Lag(t.Context()); err != nil || lag != (outbox.Lag{}) {
		t.Errorf("of the transaction that was rolled back, messages are left: %+v, %v", lag, err)
	}
	if r, err := s.Lookup(t.Context(), serverClaim("k").ID); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("of the transaction that was rolled back, a record is left: %+v, %v", r, err)
	}
}

func TestSQLite_KeepsTheRulesOfATxStore(t *testing.T) {
	storetest.RunTx(t, func(t *testing.T) storetest.Tx[*sql.Tx] {
		tx, _ := newSQLiteTx(t, filepath.Join(t.TempDir(), "records.db"))
		return tx
	})
}

func TestSQLite_GoesByItsOwnClock(t *testing.T) {
	storetest.RunClock(t, func(t *testing.T) func(t *testing.T) onlyonce.Store {
		file := filepath.Join(t.TempDir(), "records.db")
		return func(t *testing.T) onlyonce.Store {
			s, _ := openSQLite(t, file)
			return s
		}
	})
}

func TestSQLite_KeepsTheRulesOfAStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		s, _ := newSQLite(t)
		return s
	})
}
