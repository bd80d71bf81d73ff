// Package schema brings the tables of one service to the version its program
// needs.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
)

// Migrate runs the files of the directory migrations that the database has not
// seen, in the order of their names; the table <name>_schema counts them. When
// several processes start it at once, one does the work and the others wait.
func Migrate(ctx context.Context, db *sql.DB, name string, files fs.FS) (err error) {
	list, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	restore, err := patient(ctx, conn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	return apply(ctx, conn, name, files, list)
}

// patient makes the connection wait for another process's migration.
func patient(ctx context.Context, conn *sql.Conn) (restore func() error, err error) {
	var before int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&before); err != nil {
		return nil, err
	}
	_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout = 30000")
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", before))
		return err
	}, err
}

func apply(ctx context.Context, conn *sql.Conn, name string, files fs.FS, list []string) (err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
	}()
	table := name + "_schema"
	if _, err := conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+" (version INTEGER PRIMARY KEY) STRICT"); err != nil {
		return err
	}
	var have int
	if err := conn.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM "+table).Scan(&have); err != nil {
		return err
	}
	if have > len(list) {
		return fmt.Errorf("the schema of %s has version %d, newer than %d: run a newer program", name, have, len(list))
	}
	for i := have; i < len(list); i++ {
		text, err := fs.ReadFile(files, list[i])
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", list[i], err)
		}
		if _, err := conn.ExecContext(ctx, "INSERT INTO "+table+" (version) VALUES (?)", i+1); err != nil {
			return err
		}
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}
