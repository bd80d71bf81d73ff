package storeurl

import (
	"context"
	"database/sql"
)

// hasSchemaSQL holds, for each engine, the query whether its database has the tables.
var hasSchemaSQL = map[string]string{
	SQLite:   "SELECT count(*) FROM sqlite_schema WHERE name = 'onlyonce_schema'",
	Postgres: "SELECT count(to_regclass('onlyonce_schema'))",
	MySQL:    "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'onlyonce_schema'",
}

// SchemaVersion returns the version of the tables in an engine's database, and 0
// if there are none.
func SchemaVersion(ctx context.Context, engine string, db *sql.DB) (version int, err error) {
	var made bool
	if err := db.QueryRowContext(ctx, hasSchemaSQL[engine]).Scan(&made); err != nil || !made {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM onlyonce_schema").Scan(&version)
	return version, err
}
