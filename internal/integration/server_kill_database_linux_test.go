package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// An ownDatabase is one on a server of the test's own.
type ownDatabase struct {
	driver, dsn string
	noPing      bool // connections are used as they are, however long they were idle
}

// newDatabase makes a database with the table of the callers' rows.
func (s *ownServer) newDatabase(t *testing.T) ownDatabase {
	t.Helper()
	name := "onlyonce_" + strings.ToLower(rand.Text())
	if _, err := s.admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	d := ownDatabase{driver: s.Kind.Driver, dsn: s.Kind.DSN(s.Port, name)}
	if _, err := d.pool(t).ExecContext(t.Context(), "CREATE TABLE paid (command VARCHAR(64) NOT NULL, token VARCHAR(64) NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return d
}

// with is the database as connections with another setting see it.
func (d ownDatabase) with(setting string) ownDatabase {
	d.dsn += "&" + setting
	return d
}

// through is the database as it is reached through the cutting proxy, where a ping would
// be bytes that nobody counts on.
func (d ownDatabase) through(s *ownServer, c *faults.CuttingProxy) ownDatabase {
	return ownDatabase{driver: d.driver, dsn: strings.Replace(d.dsn, s.Address(), c.Address(), 1), noPing: true}
}

// migrated opens a pool and makes the store's tables.
func (d ownDatabase) migrated(t *testing.T) *sql.DB {
	t.Helper()
	db := d.pool(t)
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// pool opens a pool, which is closed at the end.
func (d ownDatabase) pool(t *testing.T) *sql.DB {
	t.Helper()
	var db *sql.DB
	var err error
	if d.noPing && d.driver == faults.PostgreSQL.Driver {
		db, err = openWithoutPing(d.dsn)
	} else {
		db, err = faults.Open(d.driver, d.dsn)
	}
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { db.Close() })
	return db
}

func openWithoutPing(dsn string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*cfg, stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false })), nil
}

// paid returns the tokens of the rows of every command.
func (d ownDatabase) paid(t *testing.T) map[string][]string {
	t.Helper()
	rows, err := d.pool(t).QueryContext(t.Context(), "SELECT command, token FROM paid")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := make(map[string][]string)
	for rows.Next() {
		var command, token string
		if err := rows.Scan(&command, &token); err != nil {
			t.Fatal(err)
		}
		all[command] = append(all[command], token)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
