package integration

import (
	"database/sql"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// A recordPlace is one for records on a server: a schema, or a database, of the test's own.
type recordPlace interface {
	open(t testing.TB, settings ...string) (*sqlstore.Store, *sql.DB)
	tx(t *testing.T, store *sqlstore.Store, db *sql.DB) storetest.Tx[*sql.Tx]
}

// keepsTheRules tests a server through pools with each of the settings.
func keepsTheRules(t *testing.T, settings map[string][]string, newPlace func(t *testing.T) recordPlace) {
	for name, settings := range settings {
		t.Run(name, func(t *testing.T) {
			if settings != nil {
				needs.Time(t)
			}
			t.Parallel()
			at := newPlace(t)
			_, db := at.open(t, settings...)
			t.Run("of a store", func(t *testing.T) {
				storetest.Run(t, func(t *testing.T) onlyonce.Store {
					emptied(t, db, "onlyonce_records")
					return openOn(t, db)
				})
			})
			t.Run("of a transactor", func(t *testing.T) {
				storetest.RunTx(t, func(t *testing.T) storetest.Tx[*sql.Tx] {
					tx := at.tx(t, openOn(t, db), db)
					emptied(t, db, "onlyonce_records", "own")
					return tx
				})
			})
			t.Run("of the clock", func(t *testing.T) {
				storetest.RunClock(t, func(t *testing.T) func(t *testing.T) onlyonce.Store {
					emptied(t, db, "onlyonce_records")
					return func(t *testing.T) onlyonce.Store {
						s, _ := at.open(t, settings...)
						return s
					}
				})
			})
		})
	}
}

// emptied empties tables: a schema, or a pool, for each of hundreds of rules would
// take minutes.
func emptied(t *testing.T, db *sql.DB, tables ...string) {
	t.Helper()
	for _, table := range tables {
		if _, err := db.Exec("DELETE FROM " + table); err != nil {
			t.Fatal(err)
		}
	}
}
