package sqlstore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

//go:embed sqlite.sql
var sqliteFile string

var sqliteText = blocks(sqliteFile)

// sqliteOldest is the oldest version that knows all that the statements use.
const sqliteOldest = "3.42.0"

func openSQLite(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	if f := findPoolOfOne(db); f != nil {
		return nil, errors.New(f.String())
	}
	version, err := sqliteVersion(ctx, db)
	if err != nil {
		return nil, err
	}
	if olderThan(version, sqliteOldest) {
		return nil, fmt.Errorf("SQLite is %s: use a driver with %s or newer", version, sqliteFixed)
	}
	if err := checkSQLite(ctx, db); err != nil {
		return nil, err
	}
	s := &Store{db: db, text: sqliteText, writer: &writer{db: db, text: sqliteText, setup: setupSQLite}}
	s.queue = queue[job]{write: s.write, turn: takeTurn, max: maxBatch}
	if err := s.writer.open(ctx); err != nil {
		return nil, err
	}
	if err := s.refuse(ctx, cfg.AcceptRisks); err != nil {
		return nil, errors.Join(err, s.writer.close())
	}
	if s.lookup, err = db.PrepareContext(ctx, s.text["lookup"]); err != nil {
		return nil, errors.Join(err, s.writer.close())
	}
	return s, nil
}

func sqliteVersion(ctx context.Context, db *sql.DB) (version string, err error) {
	if err := db.PingContext(ctx); err != nil {
		return "", err
	}
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return "", fmt.Errorf("only SQLite is supported, and this database does not say that it is one: %w", err)
	}
	return version, nil
}

// olderThan compares versions like 3.51.3.
func olderThan(a, b string) bool {
	numbers := func(v string) (n []int) {
		for _, part := range strings.Split(v, ".") {
			i, _ := strconv.Atoi(part)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(numbers(a), numbers(b)) < 0
}

// setupSQLite prepares the writer's connection.
func setupSQLite(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 5000"); err != nil {
		return err
	}
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
			return err
		}
	}
	var synchronous int
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return err
	}
	if synchronous < full {
		_, err := conn.ExecContext(ctx, "PRAGMA synchronous = FULL")
		return err
	}
	return nil
}

// full is the least value of PRAGMA synchronous at which a commit is flushed.
const full = 2

func checkSQLite(ctx context.Context, db *sql.DB) error {
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
	if _, err := sqliteVersion(ctx, db); err != nil {
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
		if _, err := conn.ExecContext(ctx, m.SQL); err != nil {
			return fmt.Errorf("version %d: %w", m.Version, err)
		}
	}
	_, err = conn.ExecContext(ctx, sqliteText["commit"])
	return err
}

// refuse returns all findings that are not accepted in one error.
func (s *Store) refuse(ctx context.Context, accepted []string) error {
	for _, name := range accepted {
		if !slices.Contains(risks, name) {
			return fmt.Errorf("there is no risk %q to accept: write one of %s", name, strings.Join(risks, ", "))
		}
	}
	findings, err := s.Diagnose(ctx)
	if err != nil {
		return err
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
	return onlyonce.Finding{Name: name, Problem: problem, Mend: mend}
}
