package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

func checkSchema(ctx context.Context, db *sql.DB) error {
	list, err := Migrations("sqlite")
	if err != nil {
		return err
	}
	have, err := versionSQLite(ctx, db)
	if err != nil {
		return err
	}
	return checkVersion(have, list)
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// versionSQLite returns the schema's version, 0 if there is none.
func versionSQLite(ctx context.Context, on rowQuerier) (version int, err error) {
	var tables int
	if err := on.QueryRowContext(ctx, sqliteText["tables"]).Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	return version, on.QueryRowContext(ctx, sqliteText["version"]).Scan(&version)
}

func migrateSQLite(ctx context.Context, db *sql.DB) (err error) {
	if err := isSQLite(ctx, db); err != nil {
		return err
	}
	list, err := Migrations("sqlite")
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var timeout int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&timeout); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 30000"); err != nil {
		return err
	}
	defer func() {
		_, e := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", timeout))
		err = errors.Join(err, e)
	}()
	return applySQLite(ctx, conn, list)
}

// applySQLite runs what is missing, under the write lock.
func applySQLite(ctx context.Context, conn *sql.Conn, list []Migration) (err error) {
	if _, err := conn.ExecContext(ctx, sqliteText["begin"]); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), sqliteText["rollback"])
		}
	}()
	have, err := versionSQLite(ctx, conn)
	if err != nil {
		return err
	}
	if have > len(list) {
		return checkVersion(have, list)
	}
	for _, m := range list[have:] {
		_, err := conn.ExecContext(ctx, m.SQL)
		if err != nil && strings.Contains(err.Error(), "already") { // there is already another table with this name; view … already exists
			err = foreign(err)
		}
		if err != nil {
			return fmt.Errorf("version %d: %w", m.Version, err)
		}
	}
	_, err = conn.ExecContext(ctx, sqliteText["commit"])
	return err
}
