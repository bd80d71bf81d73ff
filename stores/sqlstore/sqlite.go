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
	"time"

	"github.com/onlyonce-go/onlyonce"
)

//go:embed sqlite.sql
var sqliteFile string

var sqliteText = blocks(sqliteFile)

// sqliteOldest is the oldest version that knows all that the statements use.
const sqliteOldest = "3.42.0"

func openSQLite(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	path, err := checkSQLite(ctx, db)
	if err != nil {
		return nil, err
	}
	opened, err := openedFile(path)
	if err != nil {
		return nil, err
	}
	s := &Store{file: opened, db: db, text: sqliteText, writer: &writer{db: db, text: sqliteText, setup: setupSQLite}}
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

// patience is how long a database may be locked while a store is opened.
const patience = 10 * time.Second

// patiently repeats f while the database is locked. Most statements wait by
// themselves; one that turns the write-ahead log on, which may stand in the
// DSN, does not.
func patiently(ctx context.Context, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if err == nil || !strings.Contains(err.Error(), "locked") || time.Since(began) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// checkSQLite looks at what must be right before anything is tried, and returns
// where the database's file is.
func checkSQLite(ctx context.Context, db *sql.DB) (file string, err error) {
	if f := findPoolOfOne(db); f != nil {
		return "", errors.New(f.String())
	}
	if err := isSQLite(ctx, db); err != nil {
		return "", err
	}
	pool, err := readSettings(through{ctx: ctx, on: db, text: sqliteText})
	if err != nil {
		return "", err
	}
	for _, f := range findInSettings(pool, pool) {
		if !slices.Contains(risks, f.Name) {
			return "", errors.New(f.String())
		}
	}
	return pool.file, checkSchema(ctx, db)
}

func isSQLite(ctx context.Context, db *sql.DB) error {
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	var version string
	if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		return fmt.Errorf("only SQLite is supported, and this database does not say that it is one: %w", err)
	}
	if olderThan(version, sqliteOldest) {
		return fmt.Errorf("SQLite is %s: use a driver with %s or newer", version, sqliteFixed)
	}
	return nil
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
