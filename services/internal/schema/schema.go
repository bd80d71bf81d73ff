// Package schema brings the tables of one service to the version that its program
// needs, with goose, in any of the databases that sqlstore knows.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// Migrate runs the files of the directory migrations/ENGINE, or of migrations if the
// service has one engine, that the database has not seen, in the order of their
// numbers. The table <name>_schema counts them. When several processes start at the
// same time, each file runs once.
//
// MySQL commits every statement that makes a table, so a file that fails there leaves
// what came before the failure: a person has to complete or undo it.
func Migrate(ctx context.Context, db *sql.DB, name string, files fs.FS) error {
	engine, err := EngineOf(ctx, db)
	if err != nil {
		return err
	}
	p, err := engine.provider(db, name, files)
	if err != nil {
		return err
	}
	if err := up(ctx, p); err != nil {
		return err
	}
	have, need, err := p.GetVersions(ctx)
	if err == nil && have > need {
		err = fmt.Errorf("the schema of %s has version %d, newer than %d: run a newer program", name, have, need)
	}
	return err
}

// up runs the missing migrations. Where only the transaction of a migration keeps two
// processes apart, the slower one fails, and goes on behind the other.
func up(ctx context.Context, p *goose.Provider) error {
	before, err := p.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	for {
		_, failed := p.Up(ctx)
		if failed == nil {
			return nil
		}
		now, err := p.GetDBVersion(ctx)
		if err != nil || now <= before {
			return explain(failed)
		}
		before = now
	}
}

// explain names the file of a migration that failed.
func explain(err error) error {
	var failed *goose.PartialError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %w", failed.Failed.Source.Path, failed.Err)
	}
	return err
}

// provider returns goose's for the service's files.
func (e Engine) provider(db *sql.DB, name string, files fs.FS) (*goose.Provider, error) {
	dir, err := directory(e, name, files)
	if err != nil {
		return nil, err
	}
	versions, err := database.NewStore(dialects[e], name+"_schema")
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{goose.WithStore(versionStore{versions, e}), goose.WithDisableGlobalRegistry(true)}
	if e == MySQL {
		options = append(options, goose.WithSessionLocker(mysqlLock(name+"_schema")))
	}
	return goose.NewProvider(goose.DialectCustom, db, dir, options...)
}

var dialects = map[Engine]database.Dialect{
	SQLite: database.DialectSQLite3, Postgres: database.DialectPostgres, MySQL: database.DialectMySQL,
}

// directory returns the service's files for an engine.
func directory(engine Engine, name string, files fs.FS) (fs.FS, error) {
	folders := []string{path.Join("migrations", string(engine))}
	if engine == SQLite {
		folders = append(folders, "migrations")
	}
	for _, folder := range folders {
		if found, err := fs.Glob(files, folder+"/*.sql"); err != nil || len(found) > 0 {
			dir, sub := fs.Sub(files, folder)
			return dir, errors.Join(err, sub)
		}
	}
	return nil, fmt.Errorf("%s has no tables for %s: use another database", name, engine)
}

// A versionStore takes every version once: the migration that comes second fails when
// its number is recorded, and its transaction is rolled back.
type versionStore struct {
	database.Store
	engine Engine
}

func (s versionStore) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if s.engine == MySQL {
		if err := s.dropEmpty(ctx, db); err != nil {
			return err
		}
	}
	if err := s.Store.CreateVersionTable(ctx, db); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE UNIQUE INDEX "+s.Tablename()+"_version ON "+s.Tablename()+" (version_id)")
	return err
}

// dropEmpty drops the table without its first row that a process on MySQL left which
// was killed while it made the table. The lock keeps others out.
func (s versionStore) dropEmpty(ctx context.Context, db database.DBTxConn) error {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+s.Tablename()).Scan(&n); err != nil || n > 0 {
		return nil // if there is no table, it is made; what else is wrong shows then
	}
	_, err := db.ExecContext(ctx, "DROP TABLE "+s.Tablename())
	return err
}

// TableExists looks for the first row, with which the making of the table ends. goose's
// own way reads a time, which the driver for MySQL returns as text unless it is told
// otherwise.
func (s versionStore) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+s.Tablename()+" WHERE version_id = 0").Scan(&n); err != nil {
		return false, nil // what else is wrong shows when the table is made
	}
	return n > 0, nil
}

// A mysqlLock is the name of a lock that keeps other processes out, because on MySQL a
// transaction does not.
type mysqlLock string

func (l mysqlLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(concat(database(), '.', ?), 60)", string(l)).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("another process has been migrating %s for a minute: start again later", l)
	}
	return nil
}

func (l mysqlLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK(concat(database(), '.', ?))", string(l))
	return err
}
