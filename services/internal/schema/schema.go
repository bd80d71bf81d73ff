// Package schema brings the tables of one service to the version its program
// needs, in any of the databases that sqlstore knows.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Migrate runs the files of the directory migrations/ENGINE, or migrations if
// the service has one engine, that the database has not seen, in the order of
// their names; the table <name>_schema counts them. When several processes start
// it at once, one does the work and the others wait.
//
// MySQL commits every statement that makes a table, so that a file which fails
// there leaves what came before: it must be made whole by hand.
func Migrate(ctx context.Context, db *sql.DB, name string, files fs.FS) error {
	engine, err := EngineOf(ctx, db)
	if err != nil {
		return err
	}
	list, err := texts(engine, files)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%s has no tables for %s: use another database", name, engine)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	m := &migration{ctx: ctx, conn: conn, table: name + "_schema", name: name}
	return errors.Join(engines[engine](m, func() error { return m.apply(engine, list) }), conn.Close())
}

// A text is one file of migrations.
type text struct{ file, sql string }

func texts(engine Engine, files fs.FS) (list []text, err error) {
	names, err := fs.Glob(files, path.Join("migrations", string(engine), "*.sql"))
	if err == nil && len(names) == 0 && engine == SQLite {
		names, err = fs.Glob(files, "migrations/*.sql")
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		sql, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		list = append(list, text{name, string(sql)})
	}
	return list, nil
}

// engines say how each engine runs a migration alone.
var engines = map[Engine]func(m *migration, apply func() error) error{
	SQLite: func(m *migration, apply func() error) (err error) {
		var before int
		if err := m.conn.QueryRowContext(m.ctx, "PRAGMA busy_timeout").Scan(&before); err != nil {
			return err
		}
		restore := fmt.Sprintf("PRAGMA busy_timeout = %d", before)
		return m.within("PRAGMA busy_timeout = 30000", restore, func() error {
			return m.transaction("BEGIN IMMEDIATE", apply)
		})
	},
	Postgres: func(m *migration, apply func() error) error {
		return m.transaction("BEGIN ISOLATION LEVEL READ COMMITTED", func() error {
			if err := m.exec("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", m.table); err != nil {
				return err
			}
			return apply()
		})
	},
	MySQL: func(m *migration, apply func() error) error {
		var got sql.NullInt64
		if err := m.conn.QueryRowContext(m.ctx, "SELECT GET_LOCK(concat(database(), '.', ?), 60)", m.table).Scan(&got); err != nil {
			return err
		}
		if got.Int64 != 1 {
			return fmt.Errorf("another process has been migrating %s for a minute: start again later", m.name)
		}
		return m.within("", "DO RELEASE_LOCK(concat(database(), '."+m.table+"'))", apply)
	},
}

// A migration is one run over a connection of its own.
type migration struct {
	ctx         context.Context
	conn        *sql.Conn
	name, table string
}

func (m *migration) exec(statement string, args ...any) error {
	_, err := m.conn.ExecContext(m.ctx, statement, args...)
	return err
}

// within runs fn between two statements, the second in any case.
func (m *migration) within(before, after string, fn func() error) error {
	if before != "" {
		if err := m.exec(before); err != nil {
			return err
		}
	}
	err := fn()
	_, restored := m.conn.ExecContext(context.WithoutCancel(m.ctx), after)
	return errors.Join(err, restored)
}

func (m *migration) transaction(begin string, fn func() error) (err error) {
	if err := m.exec(begin); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, _ = m.conn.ExecContext(context.WithoutCancel(m.ctx), "ROLLBACK")
		return err
	}
	return m.exec("COMMIT")
}

// apply runs what is missing.
func (m *migration) apply(engine Engine, list []text) error {
	strict := ""
	if engine == SQLite {
		strict = " STRICT"
	}
	if err := m.exec("CREATE TABLE IF NOT EXISTS " + m.table + " (version INTEGER NOT NULL PRIMARY KEY)" + strict); err != nil {
		return err
	}
	var have int
	if err := m.conn.QueryRowContext(m.ctx, "SELECT coalesce(max(version), 0) FROM "+m.table).Scan(&have); err != nil {
		return err
	}
	if have > len(list) {
		return fmt.Errorf("the schema of %s has version %d, newer than %d: run a newer program", m.name, have, len(list))
	}
	for i, t := range list[have:] {
		for statement := range statements(engine, t.sql) {
			if err := m.exec(statement); err != nil {
				return fmt.Errorf("%s: %w", t.file, err)
			}
		}
		if err := m.exec(engine.Bind("INSERT INTO "+m.table+" (version) VALUES (?)"), have+i+1); err != nil {
			return err
		}
	}
	return nil
}

// statements yields the statements of a text one by one, where the driver takes
// no more at a time. Each ends with a semicolon at the end of its line.
func statements(engine Engine, sql string) func(func(string) bool) {
	return func(yield func(string) bool) {
		if engine == SQLite {
			yield(sql)
			return
		}
		for statement := range strings.SplitSeq(sql, ";\n") {
			if strings.TrimSpace(statement) != "" && !yield(statement) {
				return
			}
		}
	}
}
