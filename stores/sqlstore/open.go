package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// The engines, as Migrations names them.
const (
	engineSQLite   = "sqlite"
	enginePostgres = "postgres"
	engineMySQL    = "mysql" // and MariaDB
)

const supported = "SQLite, PostgreSQL 13, MySQL 8, MariaDB 10.6 and newer are supported"

// mysqlVersion is how MySQL and MariaDB say their version: other servers that
// speak their language have a name in it.
var mysqlVersion = regexp.MustCompile(`^[0-9.]+(-([0-9.]+-)?MariaDB.*|-log|-debug|-[0-9]*ubuntu.*|-[0-9]+.*|)$`)

// engineOf asks the database what it is.
func engineOf(ctx context.Context, db *sql.DB) (string, error) {
	if err := db.PingContext(ctx); err != nil {
		return "", err
	}
	var version string
	notSQLite := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	if notSQLite == nil {
		return engineSQLite, nil
	}
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil {
		return "", fmt.Errorf("%s; this database does not say what it is: %w", supported, errors.Join(notSQLite, err))
	}
	switch {
	case strings.HasPrefix(version, "PostgreSQL "):
		return enginePostgres, nil
	case mysqlVersion.MatchString(version):
		return engineMySQL, nil
	}
	return "", fmt.Errorf("%s; this database is %s", supported, version)
}

func openEngine(ctx context.Context, db *sql.DB, cfg Config) (e engine, err error) {
	err = retryWhileLocked(ctx, func() error {
		name, err := engineOf(ctx, db)
		switch {
		case err != nil:
			return err
		case name == enginePostgres:
			e, err = openPostgres(ctx, db, cfg)
		case name == engineMySQL:
			e, err = openMySQL(ctx, db, cfg)
		default:
			e, err = openSQLite(ctx, db, cfg)
		}
		return err
	})
	if isDamage(err) {
		err = fmt.Errorf("%s: %w; %s", riskDamage, err, mendDamage)
	}
	return e, err
}

// Migrate upgrades the schema to the version that this package needs. It never
// deletes anything, and it creates nothing if one of its table names is already
// in use. When several processes call it at the same time, one of them does the
// work and the others wait.
func Migrate(ctx context.Context, db *sql.DB) error {
	err := retryWhileLocked(ctx, func() error {
		name, err := engineOf(ctx, db)
		switch {
		case err != nil:
			return err
		case name == enginePostgres:
			return migratePostgres(ctx, db)
		case name == engineMySQL:
			return migrateMySQL(ctx, db)
		}
		return migrateSQLite(ctx, db)
	})
	if err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	return nil
}

// refuse returns all findings that are not accepted in one error.
func refuse(findings []onlyonce.Finding, accepted, risks []string) error {
	for _, name := range accepted {
		if !slices.Contains(risks, name) {
			return fmt.Errorf("there is no risk %q to accept: write one of %s", name, strings.Join(risks, ", "))
		}
	}
	var refused []error
	for _, f := range findings {
		if !slices.Contains(accepted, f.Name) {
			refused = append(refused, errors.New(f.String()))
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return fmt.Errorf("settings of the database would break the promise: %w", errors.Join(refused...))
}

func newFinding(name, problem, mend string) onlyonce.Finding {
	return onlyonce.Finding{Name: name, Problem: problem, Fix: mend}
}
