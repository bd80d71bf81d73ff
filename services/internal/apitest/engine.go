package apitest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A Database is one of a test's own, that it may open several times.
type Database struct {
	Engine string // sqlite, postgres or mysql
	Driver string
	DSN    string
}

// Engines are the kinds of databases that a test of a service runs on.
var Engines = []string{"sqlite", "postgres", "mysql"}

// OnEngines runs a test on a new database of each engine.
func OnEngines(t *testing.T, test func(t *testing.T, d *Database)) {
	for _, engine := range Engines {
		t.Run(engine, func(t *testing.T) { test(t, NewDatabase(t, engine)) })
	}
}

// NewDatabase makes an empty database, which is dropped at the test's end.
func NewDatabase(t *testing.T, engine string) *Database {
	t.Helper()
	name := "onlyonce_" + strings.ToLower(rand.Text()[:12])
	switch engine {
	case "sqlite":
		return &Database{engine, "sqlite", sqliteDSN(t.TempDir())}
	case "postgres":
		server := FromEnv("ONLYONCE_POSTGRES", "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable")
		create(t, "pgx", server, name, "DROP DATABASE "+name+" WITH (FORCE)")
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		return &Database{engine, "pgx", u.String()}
	case "mysql":
		server := FromEnv("ONLYONCE_MYSQL", "root@tcp(127.0.0.1:3306)/")
		create(t, "mysql", server, name, "DROP DATABASE "+name)
		cfg, err := mysql.ParseDSN(server)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DBName = name
		return &Database{engine, "mysql", cfg.FormatDSN()}
	}
	t.Fatalf("there is no engine %q", engine)
	return nil
}

func sqliteDSN(dir string) string {
	return "file:" + filepath.Join(dir, "test.db") + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
}

// FromEnv returns the value of an environment variable, or another if it is not set.
func FromEnv(name, otherwise string) string {
	if text := os.Getenv(name); text != "" {
		return text
	}
	return otherwise
}

// create makes a database on a server, if it is there.
func create(t *testing.T, driver, dsn, name, drop string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	needs.Service(t, "the "+driver+" server", db.PingContext(t.Context()))
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close()
		if _, err := db.Exec(drop); err != nil {
			t.Error(err)
		}
	})
}

// connections is the maximum that a test takes of a server's connections, which has as many for all
// tests of all packages together as it was set up for. They are kept: to make one
// costs more than most statements.
const connections = 16

// Open opens the database and the store in it, whose tables are made if they are
// not there.
func (d *Database) Open(ctx context.Context) (*sql.DB, *sqlstore.Store, error) {
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if err := sqlstore.Migrate(ctx, db); err != nil {
		return nil, nil, err
	}
	store, err := sqlstore.Open(ctx, db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	return db, store, err
}
