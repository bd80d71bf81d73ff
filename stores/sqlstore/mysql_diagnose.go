package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// The oldest versions whose statements are the ones used.
const (
	mysqlOldest   = "8.0"
	mariadbOldest = "10.6"
)

// The names of what Diagnose may find on a MySQL or MariaDB server, besides
// riskReplica and riskOldVersion.
const (
	riskFlush   = "innodb-flush-log"
	riskBinlog  = "sync-binlog"
	riskMode    = "sql-mode"
	riskGalera  = "galera"
	riskSysdate = "sysdate-is-now"
)

var mysqlRisks = []string{riskFlush, riskBinlog, riskGalera, riskSysdate}

// mysqlPrepared are the statements that callers wait for: unprepared, each would
// take two round trips more.
var mysqlPrepared = []string{
	"floor", "look", "lookup", "claim", "take", "renew", "step", "settle", "release", "record", "record again", "flush",
}

func openMySQL(ctx context.Context, db *sql.DB, cfg Config) (*server, error) {
	m := new(mysql)
	s := &server{db: db, dialect: m, risks: mysqlRisks}
	if err := s.check(ctx, cfg); err != nil {
		return nil, err
	}
	if err := m.probe(s.line(ctx)); err != nil {
		return nil, err
	}
	if err := s.prepareAll(ctx, mysqlPrepared...); err != nil {
		return nil, err
	}
	groupMySQL(s, m)
	return s, nil
}

// probe finds out how the server and the driver count.
func (m *mysql) probe(l serverSession) error {
	res, err := l.exec("probe")
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

func (m *mysql) diagnose(l serverSession) (found []onlyonce.Finding, err error) {
	add := func(name, problem, mend string) { found = append(found, newFinding(name, problem, mend)) }
	err = l.query("settings", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		_, ticks, version, mode := r.Int("sleep"), r.Int("ticks") != 0, r.Text("version"), r.Text("sql_mode")
		flush, binlog, sync, readOnly := r.Int("flush"), r.Int("log_bin") != 0, r.Int("sync_binlog"), r.Int("read_only") != 0
		m.binlog = binlog
		m.packet, m.database = int(r.Int("packet")), r.Text("database")
		if tooOld(version) {
			add(riskOldVersion, "the server is "+version, "use MySQL 8 or MariaDB "+mariadbOldest+", or newer")
		}
		if !strings.Contains(mode, "STRICT_") {
			add(riskMode, "sql_mode is not strict: a value that does not fit is cut", "SET GLOBAL sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')")
		}
		if readOnly {
			add(riskReplica, "read_only is on: the server is a replica, which knows too little", "connect to the primary")
		}
		if flush != 1 {
			add(riskFlush, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: a crash can lose what was committed", flush), "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		}
		if binlog && sync != 1 {
			add(riskBinlog, fmt.Sprintf("sync_binlog is %d: after a crash, replicas can have less than was committed", sync), "SET GLOBAL sync_binlog = 1")
		}
		if !ticks {
			add(riskSysdate, "SYSDATE is NOW: the clock stands still while a statement waits for a lock, and a lease that lapses meanwhile is seen later", "start the server without sysdate_is_now")
		}
		return r.Err
	})
	if err != nil {
		return nil, err
	}
	err = l.query("galera", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		if _, on := r.Text("name"), r.Text("value"); on == "ON" {
			add(riskGalera, "wsrep_on is ON: in a cluster with several writers, two nodes can give one command", "let all writers use one node, and accept the risk")
		}
		return r.Err
	})
	return found, err
}

func tooOld(version string) bool {
	number, suffix, _ := strings.Cut(version, "-")
	if strings.Contains(suffix, "MariaDB") {
		return olderThan(strings.TrimPrefix(number, "5.5.5-"), mariadbOldest)
	}
	return olderThan(number, mysqlOldest)
}
