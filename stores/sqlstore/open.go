package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/mysql"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqlite"
)

// ErrOtherCluster says that a call has reached another server of PostgreSQL, MySQL or MariaDB than
// the one on which the store was opened, or on PostgreSQL another database or schema, and has
// written nothing there. Otherwise, commands would run once in each. After the server was replaced
// on purpose, open the store again.
var ErrOtherCluster = server.ErrOtherCluster

// A kind is a kind of database that has an engine.
type kind struct {
	open          func(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, error)
	openReader    func(ctx context.Context, db *sql.DB) (engine.Reader, error)
	migrate       func(ctx context.Context, db *sql.DB) error
	migrations    []engine.Migration
	schemaVersion func(ctx context.Context, on engine.RowQuerier) (int, error)
}

// kinds holds the engines by the names that Migrations accepts.
var kinds = map[string]kind{
	"sqlite":   {open: sqlite.Open, openReader: sqlite.OpenReader, migrate: sqlite.Migrate, migrations: sqlite.Migrations, schemaVersion: sqlite.SchemaVersion},
	"postgres": {open: postgres.Open, openReader: postgres.OpenReader, migrate: postgres.Migrate, migrations: postgres.Migrations, schemaVersion: postgres.SchemaVersion},
	"mysql":    {open: mysql.Open, openReader: mysql.OpenReader, migrate: mysql.Migrate, migrations: mysql.Migrations, schemaVersion: mysql.SchemaVersion}, // and MariaDB
}

const supported = "SQLite, PostgreSQL 13, MySQL 8, MariaDB 10.6 and newer are supported"

// kindOf determines the kind of a database.
func kindOf(ctx context.Context, db *sql.DB) (kind, error) {
	if db == nil {
		panic("sqlstore: there is no database: pass what sql.Open returned")
	}
	if err := db.PingContext(ctx); err != nil {
		return kind{}, err
	}
	_, notSQLite := sqlite.Version(ctx, db)
	if notSQLite == nil {
		return kinds["sqlite"], nil
	}
	version, err := server.Version(ctx, db)
	if err != nil {
		return kind{}, fmt.Errorf("%s; the kind of this database could not be determined: %w", supported, errors.Join(notSQLite, err))
	}
	switch {
	case postgres.Is(version):
		return kinds["postgres"], nil
	case mysql.Is(version):
		return kinds["mysql"], nil
	}
	return kind{}, server.Unsupported(supported, version)
}

// withKind calls fn with the kind of a database, again while SQLite's file is locked.
func withKind(ctx context.Context, db *sql.DB, fn func(kind) error) error {
	return sqlite.RetryWhileLocked(ctx, func() error {
		k, err := kindOf(ctx, db)
		if err != nil {
			return err
		}
		return fn(k)
	})
}

func openEngine(ctx context.Context, db *sql.DB, cfg Config) (e engine.Engine, err error) {
	err = withKind(ctx, db, func(k kind) (err error) {
		e, err = k.open(ctx, db, cfg.AcceptRisks)
		return err
	})
	return e, sqlite.ExplainDamage(err)
}
