package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
)

// A Migration is one version of the schema. It records its own version, so
// another tool may also run it, in a transaction.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// Migrations returns the migrations of an engine in order. The engine is
// "sqlite", "postgres" or "mysql", which also covers MariaDB.
func Migrations(engine string) ([]Migration, error) {
	k, ok := kinds[engine]
	if !ok {
		return nil, fmt.Errorf("sqlstore: migrations: no engine %q: use \"sqlite\", \"postgres\" or \"mysql\"", engine)
	}
	list := make([]Migration, len(k.migrations))
	for i, m := range k.migrations {
		list[i] = Migration(m)
	}
	return list, nil
}

// Migrate upgrades the schema to the version that this package needs. It never
// deletes anything, and it creates nothing if one of its table names is already
// in use. When several processes call it at the same time, one of them does the
// work and the others wait.
func Migrate(ctx context.Context, db *sql.DB) error {
	err := withKind(ctx, db, func(k kind) error { return k.migrate(ctx, db) })
	if err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	return nil
}

// SchemaVersion returns the version of the schema in a database, which is the
// number of its last migration, and 0 if the database has none. Open needs the
// version of the last of Migrations.
func SchemaVersion(ctx context.Context, db *sql.DB) (version int, err error) {
	err = withKind(ctx, db, func(k kind) (err error) {
		version, err = k.schemaVersion(ctx, db)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("sqlstore: schema version: %w", err)
	}
	return version, nil
}
