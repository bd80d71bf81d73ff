package sqlstore

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
)

//go:embed migrations
var migrations embed.FS

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
	from, folder := migrations, path.Join("migrations", engine)
	if engine == enginePostgres {
		from, folder = pgschema.Migrations, "migrations"
	}
	files, err := fs.Glob(from, path.Join(folder, "*.sql"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("sqlstore: migrations: no engine %q: use \"sqlite\", \"postgres\" or \"mysql\"", engine)
	}
	list := make([]Migration, len(files))
	for i, file := range files {
		text, err := from.ReadFile(file)
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

// foreign adds to the reason why a migration can't make something what to do about it.
func foreign(reason error) error {
	return fmt.Errorf("something that is not of this schema has the name of one of its tables: rename or drop it, or use another database: %w", reason)
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
