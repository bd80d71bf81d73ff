package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

//go:embed migrations
var migrationFiles embed.FS

// Migrations are the versions of the schema.
var Migrations = engine.ReadMigrations(migrationFiles)

// SchemaVersion returns the version of the schema, and 0 if there is none.
func SchemaVersion(ctx context.Context, on engine.RowQuerier) (int, error) {
	return engine.SchemaVersion(ctx, on, texts)
}

// Migrate runs the missing migrations while no other process does. A migration that was
// interrupted is run again from its start, because the server commits each of its
// statements.
func Migrate(ctx context.Context, db *sql.DB) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var locked sql.NullBool
	if err := conn.QueryRowContext(ctx, texts["migrate alone"]).Scan(&locked); err != nil {
		return err
	}
	if !locked.Bool {
		return errors.New("another process has been migrating for a minute")
	}
	defer func() {
		_, e := conn.ExecContext(context.WithoutCancel(ctx), texts["migrated"])
		err = errors.Join(err, e)
	}()
	have, err := SchemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	if have > len(Migrations) {
		return engine.CheckVersion(have, len(Migrations))
	}
	if err := checkOwn(ctx, conn, Migrations[have:]); err != nil {
		return err
	}
	for _, m := range Migrations[have:] {
		for _, statement := range split(m.SQL) {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("version %d: %w", m.Version, err)
			}
		}
	}
	return nil
}

// token is a part of a file of SQL in which a semicolon ends no statement (a comment, or a
// text in quotes), or a semicolon that does.
var token = regexp.MustCompile("(?s)(?:-- |#)[^\n]*|--\n|/\\*.*?\\*/|'(?:[^'\\\\]|\\\\.)*'|\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|;")

// split returns the statements of a migration, without comments. The server executes one at
// a time.
func split(migration string) (statements []string) {
	var statement strings.Builder
	end := func() {
		if text := strings.TrimSpace(statement.String()); text != "" {
			statements = append(statements, text)
		}
		statement.Reset()
	}
	at := 0
	for _, t := range token.FindAllStringIndex(migration, -1) {
		statement.WriteString(migration[at:t[0]])
		switch at = t[1]; migration[t[0]] {
		case ';':
			end()
		case '\'', '"', '`':
			statement.WriteString(migration[t[0]:t[1]])
		}
	}
	statement.WriteString(migration[at:])
	end()
	return statements
}

// These find the tables that a migration creates, and their columns.
var (
	makesTable   = regexp.MustCompile(`(?ms)^CREATE TABLE IF NOT EXISTS (\w+) \((.*)^\)`)
	makesView    = regexp.MustCompile(`(?m)^CREATE OR REPLACE .*VIEW (\w+) AS$`)
	makesColumns = regexp.MustCompile(`(?m)^  ([a-z_]+) `)
)

// checkOwn returns an error if the database has a table or a view with the name of one
// that a migration makes, and it is something else: a migration makes what is not there,
// because one that was broken off is run again.
func checkOwn(ctx context.Context, conn *sql.Conn, list []engine.Migration) error {
	for _, m := range list {
		for _, statement := range split(m.SQL) {
			var name, kind string
			var needed [][]string
			if table := makesTable.FindStringSubmatch(statement); table != nil {
				name, kind, needed = table[1], "BASE TABLE", makesColumns.FindAllStringSubmatch(table[2], -1)
			} else if view := makesView.FindStringSubmatch(statement); view != nil {
				name, kind = view[1], "VIEW"
			} else {
				continue
			}
			is, columns, err := describe(ctx, conn, name)
			switch {
			case err != nil:
				return err
			case is == "":
				continue
			case is != kind:
				return engine.NameTaken(fmt.Errorf("%s is there as a %s", name, strings.ToLower(is)))
			}
			for _, column := range needed {
				if !slices.Contains(columns, column[1]) {
					return engine.NameTaken(fmt.Errorf("a table %s without a column %s is there", name, column[1]))
				}
			}
		}
	}
	return nil
}

// describe returns the type of a table or view, "" if there is none, and its columns.
func describe(ctx context.Context, conn *sql.Conn, name string) (is string, columns []string, err error) {
	rows, err := conn.QueryContext(ctx, texts["describe"], name)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var column string
		if err := rows.Scan(&is, &column); err != nil {
			return "", nil, err
		}
		columns = append(columns, column)
	}
	return is, columns, rows.Err()
}
