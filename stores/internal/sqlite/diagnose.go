package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// The names of the findings of Diagnose.
const (
	riskSynchronous = "synchronous"
	riskEncoding    = "encoding"
	riskJournal     = "journal-mode"
	riskVersion     = "sqlite-version"
	riskFileSystem  = "file-system"
	riskFileMode    = "file-mode" // Open does not look for it
	riskLocking     = "locking-mode"
	riskReadOnly    = "read-only"
	riskMemory      = "in-memory"
	riskShared      = "shared-cache"
	riskPool        = "pool-of-one"
	riskDamage      = "damaged"
)

const fixJournal = "PRAGMA journal_mode = WAL, and nothing else in the DSN"

// risks are the findings that can be accepted. With the others, the store does not work.
var risks = []string{riskSynchronous, riskEncoding, riskJournal, riskVersion, riskFileSystem, riskFileMode}

// fixed is the first version without the bug that can corrupt a database when two
// connections reset its write-ahead log.
const fixed = "3.51.3"

// settings are the settings of a connection.
type settings struct {
	version, journal string
	synchronous      int64
	locking, file    string
	encoding         string
}

func readSettings(s engine.Runner) (set settings, err error) {
	return set, s.Query("settings", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		set = settings{version: r.Text("version"), journal: r.Text("journal_mode"), synchronous: r.Int("synchronous"), locking: r.Text("locking_mode"), file: r.Text("file"), encoding: r.Text("encoding")}
		return r.Err
	})
}

// A settingsOp reads the settings of the writer's connection, and whether it
// may write.
type settingsOp struct {
	settings settings
	readOnly bool
}

func (o *settingsOp) trySingleStatement(s engine.Runner) (done bool, err error) {
	if o.settings, err = readSettings(s); err != nil {
		return false, err
	}
	_, err = s.Exec("lock", nil)
	if o.readOnly = isReadOnly(err); o.readOnly {
		err = nil
	}
	return true, err
}

func (o *settingsOp) apply(s engine.Runner, _ *clock) error {
	_, err := o.trySingleStatement(s)
	return err
}

func isReadOnly(err error) bool {
	return err != nil && strings.Contains(err.Error(), "readonly")
}

// Diagnose also reads the whole file.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	found, err := s.settings(ctx)
	if err != nil {
		return nil, err
	}
	var says string
	if err := s.db.QueryRowContext(ctx, s.text["quick check"]).Scan(&says); err != nil && !isDamage(err) {
		return nil, err
	} else if err != nil {
		says = err.Error()
	}
	if says != "ok" {
		found = append(found, engine.NewFinding(riskDamage, "the file is damaged: "+says, fixDamage))
	}
	if f := findFileMode(s.file.opened.path); f != nil {
		found = append(found, *f)
	}
	return found, nil
}

const fixDamage = "stop every process that uses the file and restore it from a backup, or save the readable part with the shell's .recover"

// isDamage reports whether an error says that the file is damaged or no database.
func isDamage(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "malformed") || strings.Contains(err.Error(), "not a database"))
}

// ExplainDamage adds advice to the error of a damaged file.
func ExplainDamage(err error) error {
	if isDamage(err) {
		return fmt.Errorf("%s: %w; %s", riskDamage, err, fixDamage)
	}
	return err
}

// settings returns the findings for which Open rejects a database.
func (s *Store) settings(ctx context.Context) ([]onlyonce.Finding, error) {
	ours := new(settingsOp)
	if err := s.do(ctx, ours); err != nil {
		return nil, err
	}
	pool, err := readSettings(sqlRunner{ctx: ctx, on: s.db, text: s.text})
	if err != nil {
		return nil, err
	}
	found := findInSettings(ours.settings, pool)
	if ours.readOnly {
		found = append(found, engine.NewFinding(riskReadOnly, "the database can't be written", "give the process write access to the file and its folder, and open it without mode=ro and query_only"))
	}
	if f := findPoolOfOne(s.db); f != nil {
		return append(found, *f), nil
	}
	if !ours.readOnly {
		shared, err := s.findSharedCache(ctx)
		if err != nil {
			return nil, err
		}
		if shared != nil {
			found = append(found, *shared)
		}
	}
	if f := findFileSystem(ours.settings.file); f != nil {
		found = append(found, *f)
	}
	return found, nil
}

func findInSettings(ours, pool settings) (found []onlyonce.Finding) {
	add := func(name, problem, fix string) { found = append(found, engine.NewFinding(name, problem, fix)) }
	if ours.file == "" {
		add(riskMemory, "the database is in memory or temporary: every connection has one of its own, and it ends with the process", "open a file; for tests use memstore")
		return found
	}
	if low := min(ours.synchronous, pool.synchronous); low < full {
		add(riskSynchronous, fmt.Sprintf("synchronous is %d on a connection: what was committed can be lost with the machine's power", low),
			"PRAGMA synchronous = FULL on every connection (modernc.org/sqlite: _pragma=synchronous(full) in the DSN)")
	}
	if ours.journal != "wal" || pool.journal != "wal" {
		add(riskJournal, fmt.Sprintf("journal_mode is %s: readers and the writer shut each other out", pool.journal),
			fixJournal)
	}
	if engine.OlderThan(ours.version, fixed) {
		add(riskVersion, "SQLite "+ours.version+" can corrupt a database when two connections reset its write-ahead log", "use a driver with SQLite "+fixed+" or newer")
	}
	if ours.encoding != "UTF-8" {
		add(riskEncoding, "the database's encoding is "+ours.encoding+", which can't hold every text: the record of a command whose ID is not UTF-8 can't be recognized, and its repeats get errors",
			"keep the records in another file (PRAGMA encoding = 'UTF-8' before its first table)")
	}
	if ours.locking == "exclusive" || pool.locking == "exclusive" {
		add(riskLocking, "locking_mode is exclusive: one connection shuts all others out", "PRAGMA locking_mode = NORMAL on every connection")
	}
	return found
}

func findPoolOfOne(db *sql.DB) *onlyonce.Finding {
	if db.Stats().MaxOpenConnections != 1 {
		return nil
	}
	f := engine.NewFinding(riskPool, "the pool has a single connection, which the store takes for writing: every read would wait forever", "db.SetMaxOpenConns(4), or any number above 1")
	return &f
}

// fileSystemOf returns the name of the network file system that holds a folder,
// or nothing. A test puts another one in its place.
var fileSystemOf = networkFileSystem

func findFileSystem(file string) *onlyonce.Finding {
	if file == "" {
		return nil
	}
	name := fileSystemOf(filepath.Dir(file))
	if name == "" {
		return nil
	}
	f := engine.NewFinding(riskFileSystem, "the file is on "+name+", where locks and shared memory can't be relied on: two writers can corrupt it", "put the file on a local disk")
	return &f
}

// findSharedCache finds connections that share one cache. No pragma says so. Such a connection
// can be set to read uncommitted data of another one, which it does nowhere else.
func (s *Store) findSharedCache(ctx context.Context) (*onlyonce.Finding, error) {
	conn, err := s.db.Conn(ctx) // now: the op must not wait for it
	if err != nil {
		return nil, err
	}
	o := &sharedOp{reads: func() (int64, error) { return s.readFloor(ctx, conn) }}
	err = s.readUncommitted(ctx, conn, func() error { return s.do(ctx, o) })
	if err = errors.Join(err, conn.Close()); err != nil || !o.shared {
		return nil, err
	}
	f := engine.NewFinding(riskShared, "the pool's connections share a cache (cache=shared): a read waits for the transaction of a function, however long that takes, or sees what is rolled back later",
		"take cache=shared out of the DSN, and SQLITE_ENABLE_SHARED_CACHE out of the program")
	return &f, nil
}

// readUncommitted calls f while the connection may read uncommitted data.
func (s *Store) readUncommitted(ctx context.Context, conn *sql.Conn, f func() error) (err error) {
	var was int
	if err := conn.QueryRowContext(ctx, s.text["read uncommitted"]).Scan(&was); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, with("set read uncommitted", "{on}", 1)); err != nil {
		return err
	}
	defer func() {
		_, e := conn.ExecContext(context.WithoutCancel(ctx), with("set read uncommitted", "{on}", was))
		err = errors.Join(err, e)
	}()
	return f()
}

func (s *Store) readFloor(ctx context.Context, conn *sql.Conn) (floor int64, err error) {
	return floor, conn.QueryRowContext(ctx, s.text["current floor"]).Scan(&floor)
}

// A sharedOp finds out whether another connection sees a change of the writer's that is not
// committed. It undoes the change.
type sharedOp struct {
	reads  func() (floor int64, err error) // on the other connection
	shared bool
}

func (*sharedOp) trySingleStatement(engine.Runner) (done bool, err error) { return false, nil }

func (o *sharedOp) apply(s engine.Runner, _ *clock) error {
	var before int64
	err := s.Query("current floor", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		before = r.Int("floor")
		return r.Err
	})
	if err == nil {
		_, err = s.Exec("savepoint", nil)
	}
	if err != nil {
		return err
	}
	_, err = s.Exec("raise floor by one", nil)
	if err == nil {
		var seen int64
		seen, err = o.reads()
		if o.shared = isLocked(err) || err == nil && seen != before; o.shared {
			err = nil
		}
	}
	for _, undo := range []string{"undo", "keep"} {
		if _, e := s.Exec(undo, nil); e != nil {
			return errors.Join(err, e)
		}
	}
	return err
}
