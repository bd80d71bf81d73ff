// Package schema migrates the tables of one service with goose, in any database that
// sqlstore supports.
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

// Migrate runs the files in the directory migrations/ENGINE, or in migrations if the
// service has one engine, that have not run in the database, in the order of their
// numbers. The table <name>_schema records them. When several processes start at the
// same time, each file runs once. Migrate returns the version that the tables had, 0 if
// there were none, and the one that they have.
//
// MySQL commits every statement that creates a table, so a file that fails there
// leaves the changes before the failure, and a person has to complete or undo them.
func Migrate(ctx context.Context, db *sql.DB, name string, files fs.FS) (from, to int64, err error) {
	p, err := open(ctx, db, name, files)
	if err != nil {
		return 0, 0, err
	}
	if from, err = p.GetDBVersion(ctx); err != nil {
		return 0, 0, err
	}
	if err := up(ctx, p, from); err != nil {
		return from, 0, err
	}
	to, need, err := p.GetVersions(ctx)
	if err == nil && to > need {
		err = errNewer(name, to, need)
	}
	return from, to, err
}

// Check returns an error unless Migrate has nothing to do. It changes nothing.
func Check(ctx context.Context, db *sql.DB, name string, files fs.FS) error {
	p, err := open(ctx, db, name, files)
	if err != nil {
		return err
	}
	sources := p.ListSources()
	need := sources[len(sources)-1].Version
	var have int64
	err = db.QueryRowContext(ctx, "SELECT max(version_id) FROM "+name+"_schema").Scan(&have)
	switch {
	case err != nil:
		return fmt.Errorf("the tables of %s are missing or can't be read: run onlyonce migrate --serve with the same URL: %w", name, err)
	case have < need:
		return fmt.Errorf("the schema of %s has version %d, older than %d: run onlyonce migrate --serve with the same URL", name, have, need)
	case have > need:
		return errNewer(name, have, need)
	}
	return nil
}

func errNewer(name string, have, need int64) error {
	return fmt.Errorf("the schema of %s has version %d, newer than %d: run a newer program", name, have, need)
}

// Prepare is Migrate, or Check if noMigrate is set.
func Prepare(ctx context.Context, db *sql.DB, name string, files fs.FS, noMigrate bool) error {
	if noMigrate {
		return Check(ctx, db, name, files)
	}
	_, _, err := Migrate(ctx, db, name, files)
	return err
}

// up runs the missing migrations. Where two processes are kept apart only by the
// transaction of a migration, the slower one fails, and then continues after the other.
// The tables had the version before.
func up(ctx context.Context, p *goose.Provider, before int64) error {
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

// explain adds to the error of a failed migration the name of its file.
func explain(err error) error {
	var failed *goose.PartialError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %w", failed.Failed.Source.Path, failed.Err)
	}
	return err
}

// open returns a goose provider for the service's files and the database's engine.
func open(ctx context.Context, db *sql.DB, name string, files fs.FS) (*goose.Provider, error) {
	engine, err := EngineOf(ctx, db)
	if err != nil {
		return nil, err
	}
	return engine.provider(db, name, files)
}

// provider returns a goose provider for the service's files.
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
	return nil, fmt.Errorf("%s does not support %s: use another database", name, engine)
}

// A versionStore records every version once: if two processes run a migration, the
// second one fails when it records the number, and its transaction is rolled back.
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

// dropEmpty drops a table of versions without its first row. On MySQL, a process that
// was killed while it created the table leaves one. The lock keeps other processes out.
func (s versionStore) dropEmpty(ctx context.Context, db database.DBTxConn) error {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+s.Tablename()).Scan(&n); err != nil || n > 0 {
		return nil // if there is no table, it is created, and any other error occurs again then
	}
	_, err := db.ExecContext(ctx, "DROP TABLE "+s.Tablename())
	return err
}

// TableExists looks for the first row, which is written last when the table is created.
// goose's own method reads a time, which the driver for MySQL returns as text by
// default.
func (s versionStore) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+s.Tablename()+" WHERE version_id = 0").Scan(&n); err != nil {
		return false, nil // any other error occurs again when the table is created
	}
	return n > 0, nil
}

// A mysqlLock is the name of a lock that keeps other processes out, because a
// transaction on MySQL does not.
type mysqlLock string

func (l mysqlLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(concat(database(), '.', ?), 60)", string(l)).Scan(&got); err != nil {
		return err
	}
	if got.Int64 != 1 {
		return fmt.Errorf("another process has been migrating %s for a minute: start again when it has finished", l)
	}
	return nil
}

func (l mysqlLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO RELEASE_LOCK(concat(database(), '.', ?))", string(l))
	return err
}
