package mysql

import (
	"context"
	"database/sql"
	"errors"
	"regexp"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// prepared are the statements that callers wait for: unprepared, each would
// take two round trips more.
var prepared = []string{
	"floor", "look", "lookup", "claim", "take", "renew", "step", "settle", "release", "record", "record again", "flush",
}

// versions matches the versions of MySQL and MariaDB. Other servers that speak their protocol
// have a name in theirs.
var versions = regexp.MustCompile(`^[0-9.]+(-([0-9.]+-)?MariaDB.*|-log|-debug|-[0-9]*ubuntu.*|-[0-9]+.*|)$`)

// Is reports whether a version, as the server reports it, is that of MySQL or MariaDB.
func Is(version string) bool { return versions.MatchString(version) }

// Open opens the store on a database that has been migrated. It rejects a server
// whose settings would break the promise, but for the findings that are accepted.
func Open(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, error) {
	m := &dialect{texts: texts, fenceFloor: newCachedFloor()}
	s := server.New(db, m, risks)
	if err := s.Check(ctx, acceptRisks); err != nil {
		return nil, err
	}
	if err := m.readSettings(s.Runner(ctx)); err != nil {
		return nil, err
	}
	if err := m.probe(s.Runner(ctx)); err != nil {
		return nil, err
	}
	if err := s.PrepareAll(ctx, prepared...); err != nil {
		return nil, err
	}
	groupWrites(s, m)
	return s, nil
}

// OpenReader returns a reader of the records in a database that has been migrated. It needs
// only the right to read the tables, and the server may be a replica.
func OpenReader(ctx context.Context, db *sql.DB) (engine.Reader, error) {
	m := &dialect{texts: texts, fenceFloor: newCachedFloor()}
	s := server.New(db, m, risks)
	if err := s.CheckSchema(ctx); err != nil {
		return nil, err
	}
	return s, m.readSettings(s.Runner(ctx))
}

// readSettings reads the settings by which the statements are sent.
func (m *dialect) readSettings(l server.Runner) error {
	err := readSettings(l, func(has settings) {
		m.database, m.packet, m.binlog = has.database, has.packet, has.binlog
	})
	if err != nil {
		return err
	}
	name := "0"
	err = readVariables(l, "semi-sync variables", func(variable, _ string) {
		if variable == "rpl_semi_sync_master_enabled" || variable == "rpl_semi_sync_source_enabled" {
			name = fill(texts["server name"], "{enabled}", variable)
		}
	})
	if err != nil {
		return err
	}
	txReadOnly := ""
	err = readVariables(l, "session variables", func(variable, _ string) {
		if variable == "tx_read_only" || variable == "transaction_read_only" { // MariaDB before 11.1; MySQL 8 and newer MariaDB
			txReadOnly = variable
		}
	})
	if err != nil {
		return err
	}
	store, err := identityOf(l)
	m.texts = textsIn(m.database, store, name, txReadOnly)
	return err
}

// probe finds out how the server and the driver count changed rows.
func (m *dialect) probe(l server.Runner) error {
	res, err := l.Exec("probe")
	if err != nil {
		return err
	}
	changed, countErr := res.RowsAffected()
	fence, idErr := res.LastInsertId()
	m.foundRows = changed != 0
	if fence != 0 {
		return errors.New("the server does not tell whether an INSERT met a row")
	}
	return errors.Join(countErr, idErr)
}
