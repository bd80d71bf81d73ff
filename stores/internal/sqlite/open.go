package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

//go:embed statements.sql
var statementsFile string

var statements = record.Blocks(record.Expiry("{now}").Replace(statementsFile + outboxFile + engine.Common + engine.Listed + engine.Unnumbered))

// oldest is the oldest version that can run every statement.
const oldest = "3.42.0"

// Open opens the store on a database that has been migrated. It rejects one whose
// settings would break the promise, but for the findings that are accepted.
func Open(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, error) {
	pool, err := checkPool(ctx, db)
	if err != nil {
		return nil, err
	}
	s, err := openFile(ctx, db, pool.file, acceptRisks)
	if isLocked(err) && pool.journal != "wal" {
		err = fmt.Errorf("%w: %w", errOtherJournal, err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openFile(ctx context.Context, db *sql.DB, path string, acceptRisks []string) (*Store, error) {
	opened, err := newFile(path)
	if err != nil {
		return nil, err
	}
	text := withSavepoint(statements)
	s := &Store{file: opened, db: db, text: text, writer: &writer{db: db, text: text, file: opened, setup: setup}}
	s.queue = group.New(group.Config[job]{Write: s.write, Turn: takeTurn, Max: maxBatch})
	if err := s.writer.open(ctx); err != nil {
		return nil, err
	}
	findings, err := s.settings(ctx)
	if err == nil {
		err = engine.Reject(findings, acceptRisks, risks)
	}
	if err != nil {
		return nil, errors.Join(err, s.writer.close())
	}
	if s.known, err = db.PrepareContext(ctx, s.text["lookup"]); err != nil {
		return nil, errors.Join(err, s.writer.close())
	}
	return s, nil
}

// withSavepoint returns the statements with a random name for the savepoints. If a function
// made a savepoint of the same name, the store would release that one and roll nothing
// back.
func withSavepoint(text map[string]string) map[string]string {
	text = maps.Clone(text)
	name := transact.SavepointName(transact.NewToken())
	for _, statement := range []string{"savepoint", "undo", "keep"} {
		text[statement] = strings.ReplaceAll(text[statement], "{name}", name)
	}
	return text
}

// patience is how long a database may stay locked while a store is opened.
const patience = 10 * time.Second

// RetryWhileLocked repeats f while the database is locked. Most statements wait by
// themselves. A statement of the DSN that turns the write-ahead log on does not, and one
// that turns it off never succeeds.
func RetryWhileLocked(ctx context.Context, f func() error) error {
	var other error
	for began := time.Now(); ; {
		err := f()
		if errors.Is(err, errOtherJournal) {
			other = err
		}
		switch waited := time.Since(began); {
		case !isLocked(err), waited > patience:
			return err
		case other != nil && waited > patience/10: // or another process was turning it on
			return other
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// locked matches SQLite's texts. Those of other databases have the word, too, such as MySQL's of an account that is
// locked.
var locked = regexp.MustCompile(`\bdatabase (table |schema )?is locked\b`)

func isLocked(err error) bool { return err != nil && locked.MatchString(err.Error()) }

var errOtherJournal = errors.New(engine.NewFinding(riskJournal, "the DSN sets another journal_mode than WAL: readers and the writer shut each other out", fixJournal).String())

// checkPool checks the settings without which the store can't be opened at all, and returns
// the settings of one of the pool's connections.
func checkPool(ctx context.Context, db *sql.DB) (pool settings, err error) {
	if f := findPoolOfOne(db); f != nil {
		return pool, errors.New(f.String())
	}
	if err := checkLibrary(ctx, db); err != nil {
		return pool, err
	}
	if pool, err = readSettings(sqlRunner{ctx: ctx, on: db, text: statements}); err != nil {
		return pool, err
	}
	for _, f := range findInSettings(pool, pool) {
		if !slices.Contains(risks, f.Name) {
			return pool, errors.New(f.String())
		}
	}
	return pool, checkSchema(ctx, db)
}

// Version returns the version of SQLite, or an error if the database is another.
func Version(ctx context.Context, db *sql.DB) (version string, err error) {
	return version, db.QueryRowContext(ctx, statements["sqlite version"]).Scan(&version)
}

func checkLibrary(ctx context.Context, db *sql.DB) error {
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	version, err := Version(ctx, db)
	if err != nil {
		return fmt.Errorf("only SQLite is supported, and this database does not say that it is one: %w", err)
	}
	if engine.OlderThan(version, oldest) {
		return fmt.Errorf("SQLite is %s: use a driver with %s or newer", version, fixed)
	}
	return nil
}

// A batch of claims changes a page of the index for nearly every claim, and the next batch
// mostly the same pages. The longer the log, the fewer pages are written twice. A value
// that the user has set, such as 0 for a replicator, stays.
const (
	checkpointDefault = 1000 // SQLite's own
	checkpointPages   = 4000
)

// How long a connection waits for a lock of another process, in milliseconds.
const (
	busyTimeout    = 5000
	migrateTimeout = 30000
)

// with returns a statement with a number in the place of a name in braces: a pragma takes
// no parameters.
func with(name, placeholder string, n int) string {
	return strings.Replace(statements[name], placeholder, strconv.Itoa(n), 1)
}

// setup prepares the writer's connection.
func setup(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, with("set busy timeout", "{milliseconds}", busyTimeout)); err != nil {
		return err
	}
	var mode string
	if err := conn.QueryRowContext(ctx, statements["journal mode"]).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		if err := conn.QueryRowContext(ctx, statements["set journal mode"]).Scan(&mode); err != nil {
			return err
		}
	}
	var pages int
	if err := conn.QueryRowContext(ctx, statements["checkpoint"]).Scan(&pages); err != nil {
		return err
	}
	if pages == checkpointDefault {
		if err := conn.QueryRowContext(ctx, with("set checkpoint", "{pages}", checkpointPages)).Scan(&pages); err != nil {
			return err
		}
	}
	var synchronous int
	if err := conn.QueryRowContext(ctx, statements["synchronous"]).Scan(&synchronous); err != nil {
		return err
	}
	if synchronous < full {
		_, err := conn.ExecContext(ctx, statements["set synchronous"])
		return err
	}
	return nil
}

// full is the least value of PRAGMA synchronous at which a commit is flushed.
const full = 2
