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

// The engines there are texts for.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql" // and MariaDB
)

// EngineOf asks a database what it is.
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
		return "", fmt.Errorf("ask the database for its version: %w", err)
	}
	return SQLite, nil
}

// Bind writes the parameters of a statement, each a question mark, as the engine
// wants them. A question mark can't stand in a text or a name.
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
