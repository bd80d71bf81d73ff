package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

//go:embed migrations
var migrationFiles embed.FS

// Migrations are the versions of the schema.
var Migrations = engine.ReadMigrations(migrationFiles)

func checkSchema(ctx context.Context, db *sql.DB) error {
	have, err := SchemaVersion(ctx, db)
	if err != nil {
		return err
	}
	return engine.CheckVersion(have, len(Migrations))
}

// SchemaVersion returns the version of the schema, and 0 if there is none.
func SchemaVersion(ctx context.Context, on engine.RowQuerier) (int, error) {
	return engine.SchemaVersion(ctx, on, statements)
}

// Migrate upgrades the schema to the version that this package needs.
func Migrate(ctx context.Context, db *sql.DB) (err error) {
	if err := checkLibrary(ctx, db); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var timeout int
	if err := conn.QueryRowContext(ctx, statements["busy timeout"]).Scan(&timeout); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, with("set busy timeout", "{milliseconds}", migrateTimeout)); err != nil {
		return err
	}
	defer func() {
		_, e := conn.ExecContext(context.WithoutCancel(ctx), with("set busy timeout", "{milliseconds}", timeout))
		err = errors.Join(err, e)
	}()
	return applyMigrations(ctx, conn)
}

// applyMigrations runs the missing migrations under the write lock.
func applyMigrations(ctx context.Context, conn *sql.Conn) (err error) {
	if _, err := conn.ExecContext(ctx, statements["begin"]); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), statements["rollback"])
		}
	}()
	have, err := SchemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	if have > len(Migrations) {
		return engine.CheckVersion(have, len(Migrations))
	}
	for _, m := range Migrations[have:] {
		_, err := conn.ExecContext(ctx, m.SQL)
		if err != nil && strings.Contains(err.Error(), "already") { // there is already another table with this name; view … already exists
			err = engine.NameTaken(err)
		}
		if err != nil {
			return fmt.Errorf("version %d: %w", m.Version, err)
		}
	}
	_, err = conn.ExecContext(ctx, statements["commit"])
	return err
}
