package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// The names of what Diagnose may find.
const (
	riskSynchronous = "synchronous"
	riskJournal     = "journal-mode"
	riskVersion     = "sqlite-version"
	riskFileSystem  = "file-system"
	riskLocking     = "locking-mode"
	riskReadOnly    = "read-only"
	riskMemory      = "in-memory"
	riskPool        = "pool-of-one"
)

// risks are those that can be accepted; with the others nothing works.
var risks = []string{riskSynchronous, riskJournal, riskVersion, riskFileSystem}

// sqliteFixed is the version without the error that can corrupt a database
// when two connections reset its write-ahead log.
const sqliteFixed = "3.51.3"

// Settings are a connection's.
type settings struct {
	version, journal string
	synchronous      int64
	locking, file    string
}

func readSettings(s session) (set settings, err error) {
	return set, s.query("settings", nil, func(v []driver.Value) error {
		r := rowReader{values: v}
		set = settings{version: r.text("version"), journal: r.text("journal_mode"), synchronous: r.int("synchronous"), locking: r.text("locking_mode"), file: r.text("file")}
		return r.err
	})
}

// A settingsOp reads the settings of the writer's connection, and whether it
// may write.
type settingsOp struct {
	settings settings
	readOnly bool
}

func (o *settingsOp) alone(s session) (done bool, err error) {
	if o.settings, err = readSettings(s); err != nil {
		return false, err
	}
	_, err = s.exec("lock", nil)
	if o.readOnly = isReadOnly(err); o.readOnly {
		err = nil
	}
	return true, err
}

func (o *settingsOp) apply(s session, _ *clock) error {
	_, err := o.alone(s)
	return err
}

func isReadOnly(err error) bool {
	return err != nil && strings.Contains(err.Error(), "readonly")
}

// Diagnose finds settings of the database and of its connections that would
// break the promise. Of the pool it looks at one connection.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	ours := new(settingsOp)
	if err := s.do(ctx, ours); err != nil {
		return nil, fmt.Errorf("sqlstore: diagnose: %w", err)
	}
	pool, err := readSettings(through{ctx: ctx, on: s.db, text: s.text})
	if err != nil {
		return nil, fmt.Errorf("sqlstore: diagnose: %w", err)
	}
	found := findInSettings(ours.settings, pool)
	if ours.readOnly {
		found = append(found, newFinding(riskReadOnly, "the database can't be written", "give the process write access to the file and its folder, and open it without mode=ro and query_only"))
	}
	if f := findPoolOfOne(s.db); f != nil {
		found = append(found, *f)
	}
	if f := findFileSystem(ours.settings.file); f != nil {
		found = append(found, *f)
	}
	return found, nil
}

func findInSettings(ours, pool settings) (found []onlyonce.Finding) {
	add := func(name, problem, mend string) { found = append(found, newFinding(name, problem, mend)) }
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
			"PRAGMA journal_mode = WAL, and nothing else in the DSN")
	}
	if olderThan(ours.version, sqliteFixed) {
		add(riskVersion, "SQLite "+ours.version+" can corrupt a database when two connections reset its write-ahead log", "use a driver with SQLite "+sqliteFixed+" or newer")
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
	f := newFinding(riskPool, "the pool has a single connection, which the store takes for writing: every read would wait for ever", "db.SetMaxOpenConns(4), or any number above 1")
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
	f := newFinding(riskFileSystem, "the file is on "+name+", where locks and shared memory can't be relied on: two writers can corrupt it", "put the file on a local disk")
	return &f
}
