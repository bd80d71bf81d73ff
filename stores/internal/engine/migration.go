package engine

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Migration is one version of the schema. It records its own version.
type Migration struct {
	Version int
	Name    string
	SQL     string
}

// ReadMigrations returns the files migrations/0001_name.sql and so on, in order. It
// panics if one is missing.
func ReadMigrations(from embed.FS) []Migration {
	files, err := fs.Glob(from, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		panic("engine: there are no migrations")
	}
	list := make([]Migration, len(files))
	for i, file := range files {
		text, err := from.ReadFile(file)
		if err != nil {
			panic(err) // the file is embedded
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != i+1 {
			panic("engine: " + file + " is not the migration that comes next")
		}
		list[i] = Migration{Version: version, Name: name, SQL: string(text)}
	}
	return list
}

// NameTaken returns the error of a migration that can't create a table or another object
// because its name is in use.
func NameTaken(reason error) error {
	return fmt.Errorf("something that is not of this schema has the name of one of its tables: rename or drop it, or use another database: %w", reason)
}

// SchemaVersion returns the version of the schema of a database, and 0 if it has none.
// The statements are those of its engine.
func SchemaVersion(ctx context.Context, on RowQuerier, statements map[string]string) (version int, err error) {
	var made bool
	if err := on.QueryRowContext(ctx, statements["tables"]).Scan(&made); err != nil || !made {
		return 0, err
	}
	err = on.QueryRowContext(ctx, statements["version"]).Scan(&version)
	return version, err
}

var errSchema = errors.New("the schema does not fit this program")

// CheckVersion returns an error that says what to do, unless the schema's version is
// the one needed.
func CheckVersion(have, need int) error {
	switch {
	case have < need:
		return fmt.Errorf("%w: version %d, needed %d: run Migrate, or onlyonce migrate (for onlyonce serve: onlyonce migrate --serve)", errSchema, have, need)
	case have > need:
		return fmt.Errorf("%w: version %d is newer than %d: run a newer program", errSchema, have, need)
	}
	return nil
}
