package integration

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce"
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
