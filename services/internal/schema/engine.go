package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// An Engine is a kind of database.
type Engine string

// The supported engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql" // and MariaDB
)

// EngineOf determines the engine of a database.
func EngineOf(ctx context.Context, db *sql.DB) (Engine, error) {
	var version string
	err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	switch {
	case err == nil && strings.HasPrefix(version, "PostgreSQL "):
		return Postgres, nil
	case err == nil:
		return MySQL, nil
	}
	if lite := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); lite != nil {
		return "", fmt.Errorf("read the database's version: %w", err)
	}
	return SQLite, nil
}

// Bind returns a statement whose parameters, each a question mark, have the form that
// the engine needs. The statement must not contain question marks in texts or names.
func (e Engine) Bind(statement string) string {
	if e != Postgres {
		return statement
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(statement, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		statement = after
	}
}
