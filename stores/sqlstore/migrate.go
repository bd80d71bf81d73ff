package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

//go:embed migrations
var migrations embed.FS

// A Migration is one version of the schema. It records its own version, so it
// may also be run by another tool, in a transaction.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// Migrations returns the migrations of an engine, "sqlite", in order.
func Migrations(engine string) ([]Migration, error) {
	files, err := fs.Glob(migrations, path.Join("migrations", engine, "*.sql"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("sqlstore: migrations: no engine %q: use \"sqlite\"", engine)
	}
	list := make([]Migration, len(files))
	for i, file := range files {
		text, err := migrations.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("sqlstore: migrations: %w", err)
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic("sqlstore: " + file + " is not the migration that comes next")
		}
		list[i] = Migration{Version: version, Name: name, SQL: string(text)}
	}
	return list, nil
}

// Migrate brings the schema to the version that this package needs. It never
// takes anything away. When several processes start it at once, one of them
// does the work and the others wait.
func Migrate(ctx context.Context, db *sql.DB) error {
	if err := patiently(ctx, func() error { return migrateSQLite(ctx, db) }); err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	return nil
}

var errSchema = errors.New("the schema does not fit this program")

// checkVersion says what to do about a schema that is not the one needed.
func checkVersion(have int, list []Migration) error {
	switch need := len(list); {
	case have < need:
		return fmt.Errorf("%w: version %d, needed %d: run sqlstore.Migrate, or onlyonce migrate", errSchema, have, need)
	case have > need:
		return fmt.Errorf("%w: version %d is newer than %d: run a newer program", errSchema, have, need)
	}
	return nil
}
