package integration

import (
	"context"
	"database/sql"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// reach returns an error if a server does not respond.
func reach(driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	return db.PingContext(ctx)
}

// makeFor makes something on a server, which is dropped at the end of the test.
func makeFor(t testing.TB, driver, dsn, what, dropping string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(0) // a test's own connections are enough
	if _, err := db.Exec("CREATE " + what); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP " + what + dropping); err != nil {
			t.Error(err)
		}
	})
}

// openPool opens a pool, which is closed at the end.
func openPool(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
}

// openMigrated opens a store on a pool, once the schema is there.
func openMigrated(t testing.TB, db *sql.DB) (*sqlstore.Store, *sql.DB) {
	t.Helper()
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return openOn(t, db), db
}

func openOn(t testing.TB, db *sql.DB) *sqlstore.Store {
	t.Helper()
	s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// makeOwn makes the caller's table, of a column for bytes, unless it is there.
func makeOwn(t testing.TB, db *sql.DB, column string) {
	t.Helper()
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS own (name " + column + " NOT NULL)"); err != nil {
		t.Fatal(err)
	}
}

// ownRows is a store beside the caller's table; mark stands for a parameter.
func ownRows(store *sqlstore.Store, db *sql.DB, mark string) storetest.Tx[*sql.Tx] {
	return storetest.Tx[*sql.Tx]{
		Store: store,
		Insert: func(ctx context.Context, tx *sql.Tx, row string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO own (name) VALUES ("+mark+")", []byte(row))
			return err
		},
		Count: func(ctx context.Context, row string) (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT count(*) FROM own WHERE name = "+mark, []byte(row)).Scan(&n)
			return n, err
		},
		Rollback: (*sql.Tx).Rollback,
		Commit:   (*sql.Tx).Commit,
	}
}
