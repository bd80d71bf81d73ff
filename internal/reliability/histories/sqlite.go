//go:build linux

package histories

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// clockSlack is more than the clocks of a store and of the machine can drift apart during a
// history, including rounding.
const clockSlack = 25 * time.Millisecond

func init() { openers["sqlite"] = openSQLite }

// SQLite returns the plan for a new file.
func SQLite(seed uint64, calls int, file string) Plan {
	p := Place{Store: "sqlite", DSN: sqliteDSN(file), Pool: 8}
	return Plan{
		Name: "SQLite", Seed: seed, Calls: calls, Place: p, Processes: 3, Clients: 1, CallsPerClient: 9, Keys: 32, Slack: clockSlack,
		Open: func() (Database, error) {
			return migrated("sqlite", p, `CREATE TABLE business (command TEXT NOT NULL, name TEXT NOT NULL) STRICT; CREATE INDEX business_command ON business (command)`)
		},
	}
}

// SQLiteClock moves the clock of the store in a file.
func SQLiteClock(weight int, file string) Fault {
	return Fault{"clocks moved", weight, func(_ *Run, rng *rand.Rand) error {
		db, err := sql.Open("sqlite", sqliteDSN(file))
		if err != nil {
			return err
		}
		defer db.Close()
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.Exec(fmt.Sprintf(`DROP VIEW onlyonce_clock; CREATE VIEW onlyonce_clock AS
			SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000 + %d AS now,
			       coalesce((SELECT max(created_at) FROM onlyonce_records), 0) AS last, floor FROM onlyonce_fence`, offset(rng).Microseconds())); err != nil {
			return err
		}
		return tx.Commit()
	}}
}

func sqliteDSN(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_txlock=immediate"
}

// migrated creates the tables, and opens the store.
func migrated(driver string, p Place, business ...string) (Database, error) {
	db, err := sql.Open(driver, p.DSN)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := sqlstore.Migrate(context.Background(), db); err != nil {
		return nil, err
	}
	for _, text := range business {
		if _, err := db.Exec(text); err != nil {
			return nil, err
		}
	}
	return openers[p.Store](p)
}

func openSQLite(p Place) (Database, error) {
	db, err := sql.Open("sqlite", p.DSN)
	if err != nil {
		return nil, err
	}
	return openSQL(db, p.Pool, "?")
}

// openSQL opens a store on a pool. The last placeholder also stands for all later parameters.
func openSQL(db *sql.DB, pool int, placeholders ...string) (Database, error) {
	db.SetMaxOpenConns(pool)
	db.SetMaxIdleConns(pool)
	placeholder := func(n int) string { return placeholders[min(n, len(placeholders)-1)] }
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := sqlstore.Open(ctx, db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	insert := fmt.Sprintf("INSERT INTO business (command, name) VALUES (%s, %s)", placeholder(0), placeholder(1))
	read := "SELECT name FROM business WHERE command = " + placeholder(0)
	return database[*sql.Tx, *sqlstore.Store]{
		Store: s, in: s,
		insert: func(ctx context.Context, tx *sql.Tx, key, row string) error {
			_, err := tx.ExecContext(ctx, insert, key, row)
			return err
		},
		read: func(ctx context.Context, key string) (names []string, err error) {
			rows, err := db.QueryContext(ctx, read, key)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var name string
				if err := rows.Scan(&name); err != nil {
					return nil, err
				}
				names = append(names, name)
			}
			return names, rows.Err()
		},
		closer: func() error { return errors.Join(s.Close(), db.Close()) },
	}, nil
}
