package mysql

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// The oldest versions whose statements are the ones used.
const (
	oldest        = "8.0"
	mariadbOldest = "10.6"
)

// The names of the findings of Diagnose on a MySQL or MariaDB server, besides
// engine.RiskReplica and engine.RiskOldVersion.
const (
	riskFlush   = "innodb-flush-log"
	riskBinlog  = "sync-binlog"
	riskMode    = "sql-mode"
	riskGalera  = "galera"
	riskSysdate = "sysdate-is-now"
	riskCommit  = "autocommit"
	riskSafe    = "sql-safe-updates"
	riskLimit   = "sql-select-limit"
	riskSync    = "semi-sync-fallback"
	riskWait    = "galera-sync-wait"
	riskDirty   = "isolation"
	riskChain   = "completion-type"
	riskFormat  = "binlog-format"
	riskCharset = "character-set"
)

var risks = []string{riskFlush, riskBinlog, riskGalera, riskSysdate, riskSync, riskWait, riskFormat}

// unusableModes are the flags of sql_mode that change what the statements mean, and how.
var unusableModes = map[string]string{
	"SIMULTANEOUS_ASSIGNMENT": "an UPDATE does not see the columns that it has assigned, and records never expire",
	"EMPTY_STRING_IS_NULL":    "a command without a tenant or an operation can't be recorded",
}

// wideSets are the character sets in which an ASCII character has more than one byte.
var wideSets = []string{"ucs2", "utf16", "utf16le", "utf32"}

// settings are those of a server and of one session.
type settings struct {
	version, mode, database        string
	ticks, binlog, readOnly        bool
	autocommit, safeUpdates, limit bool
	flush, sync                    int64
	packet                         int
}

func readSettings(l server.Runner, use func(settings)) error {
	return l.Query("settings", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		_ = r.Int("sleep")
		has := settings{
			ticks: r.Int("ticks") != 0, version: r.Text("version"), mode: r.Text("sql_mode"),
			flush: r.Int("flush"), binlog: r.Int("log_bin") != 0, sync: r.Int("sync_binlog"), readOnly: r.Int("read_only") != 0,
			packet: int(r.Int("packet")), database: r.Text("database"),
			autocommit: r.Int("autocommit") != 0, safeUpdates: r.Int("sql_safe_updates") != 0, limit: r.Int("sql_select_limit") != 0,
		}
		if r.Err == nil {
			use(has)
		}
		return r.Err
	})
}

func (*dialect) Diagnose(l server.Runner) (found []onlyonce.Finding, err error) {
	add := func(name, problem, fix string) { found = append(found, engine.NewFinding(name, problem, fix)) }
	err = readSettings(l, func(has settings) {
		if tooOld(has.version) {
			add(engine.RiskOldVersion, "the server is "+has.version, "use MySQL 8 or MariaDB "+mariadbOldest+", or newer")
		}
		if !strings.Contains(has.mode, "STRICT_") {
			add(riskMode, "sql_mode is not strict: a value that does not fit is cut", "SET GLOBAL sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')")
		}
		for flag, problem := range unusableModes {
			if slices.Contains(strings.Split(has.mode, ","), flag) {
				add(riskMode, "sql_mode has "+flag+": "+problem, "take "+flag+" out of the server's sql_mode (ORACLE includes SIMULTANEOUS_ASSIGNMENT), or give the pool another one in its DSN: sql_mode=%27STRICT_TRANS_TABLES%27")
			}
		}
		if has.safeUpdates {
			add(riskSafe, "sql_safe_updates is on: purges, groups of settlements and the outbox get errors", "SET GLOBAL sql_safe_updates = 0, and take it out of the DSN and of init_connect")
		}
		if has.limit {
			add(riskLimit, "sql_select_limit is set: a purge, a group of settlements and the outbox get fewer rows than there are", "SET GLOBAL sql_select_limit = DEFAULT, and take it out of the DSN and of init_connect")
		}
		if !has.autocommit {
			add(riskCommit, "autocommit is off: claims and settlements are not committed, and a repeat runs the command again", "SET GLOBAL autocommit = 1, and take autocommit=0 out of the DSN and of init_connect")
		}
		if has.readOnly {
			add(engine.RiskReplica, "read_only is on: the server is a replica, which lacks the latest records", "connect to the primary")
		}
		if has.flush != 1 {
			add(riskFlush, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: a crash can lose what was committed", has.flush), "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
		}
		if has.binlog && has.sync != 1 {
			add(riskBinlog, fmt.Sprintf("sync_binlog is %d: after a crash, replicas can have less than was committed", has.sync), "SET GLOBAL sync_binlog = 1")
		}
		if !has.ticks {
			add(riskSysdate, "SYSDATE is NOW: the clock stands still while a statement waits for a lock, and a lease that lapses meanwhile is seen later", "start the server without sysdate_is_now")
		}
	})
	if err != nil {
		return nil, err
	}
	has := make(map[string]string)
	for _, statement := range []string{"session variables", "semi-sync variables", "semi-sync status"} {
		if err := readVariables(l, statement, func(name, value string) { has[strings.ToLower(name)] = value }); err != nil {
			return nil, err
		}
	}
	found = append(found, unusableSession(has)...)
	if has["wsrep_on"] == "ON" {
		add(riskGalera, "wsrep_on is ON: in a cluster with several writers, two nodes can run the transaction of one command at the same time, because GET_LOCK is not replicated", "let all writers use one node, and accept the risk")
		if wait, err := strconv.Atoi(has["wsrep_sync_wait"]); err != nil || wait&syncWait != syncWait {
			add(riskWait, "wsrep_sync_wait is "+has["wsrep_sync_wait"]+": a node that has not executed yet what others have committed lacks records, and reports holds as lost", "SET GLOBAL wsrep_sync_wait = 7, or add wsrep_sync_wait=7 to the DSN")
		}
	}
	for _, role := range []struct{ source, replica string }{{"master", "slave"}, {"source", "replica"}} { // MariaDB and older MySQL; MySQL
		found = append(found, semiSync(has, "rpl_semi_sync_"+role.source, role.replica)...)
	}
	return found, nil
}

// unusableSession finds the variables of a session whose statements read what is never
// committed, are not committed, can only read, compare other words, or do something else on a replica. Transactions
// of functions set their isolation level themselves; other statements have that of the session.
func unusableSession(has map[string]string) (found []onlyonce.Finding) {
	add := func(name, problem, fix string) { found = append(found, engine.NewFinding(name, problem, fix)) }
	for _, variable := range []string{"tx_isolation", "transaction_isolation"} { // MariaDB before 11.1; MySQL 8 and newer MariaDB
		if has[variable] == "READ-UNCOMMITTED" {
			add(riskDirty, variable+" is READ-UNCOMMITTED: a response is replayed before its transaction has committed, and also if that is rolled back", "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED, and take READ-UNCOMMITTED out of the DSN and of init_connect")
			break
		}
	}
	for _, variable := range []string{"tx_read_only", "transaction_read_only"} {
		if has[variable] == "ON" {
			add(engine.RiskReplica, variable+" is ON: transactions can only read", "SET GLOBAL "+variable+" = 0, and take it out of the DSN and of init_connect")
			break
		}
	}
	if has["completion_type"] == "CHAIN" {
		add(riskChain, "completion_type is CHAIN: after a transaction, the claims and settlements of its connection are not committed, and a repeat runs the command again", "SET GLOBAL completion_type = NO_CHAIN, and take completion_type out of the DSN and of init_connect")
	}
	if set := has["character_set_connection"]; slices.Contains(wideSets, set) {
		add(riskCharset, "character_set_connection is "+set+": the words in the statements have more bytes than those in the tables, so claims fail, and no state is recognized", "take character_set_connection and collation_connection out of the DSN and of init_connect")
	}
	if has["log_bin"] == "ON" && has["binlog_format"] == "STATEMENT" {
		add(riskFormat, "binlog_format is STATEMENT: replicas execute the statements by their own clocks and get other fences, so that they lack settlements, and functions of RunTx and SettleTx get error 1665", "SET GLOBAL binlog_format = ROW")
	}
	return found
}

// syncWait are the bits of wsrep_sync_wait for all statements of a store: SELECT, UPDATE and
// DELETE, INSERT.
const syncWait = 1 | 2 | 4

// longestOutage is how long commits at least have to wait for a semi-synchronous replica that is
// not there.
const longestOutage = 24 * time.Hour

// semiSync finds settings with which commits return although no semi-synchronous replica has them. The
// names of the variables begin with prefix.
func semiSync(has map[string]string, prefix, replica string) (found []onlyonce.Finding) {
	if has[prefix+"_enabled"] != "ON" {
		return nil
	}
	add := func(problem, fix string) {
		found = append(found, engine.NewFinding(riskSync, problem+", and a failover can lose what was committed", fix))
	}
	timeout, err := strconv.ParseUint(has[prefix+"_timeout"], 10, 64)
	if err != nil || timeout < uint64(longestOutage/time.Millisecond) {
		add(fmt.Sprintf("%s_timeout is %s ms: commits wait no longer than that for a replica", prefix, has[prefix+"_timeout"]), "SET GLOBAL "+prefix+"_timeout = 4294967295")
	}
	if name := prefix + "_wait_no_" + replica; has[name] == "OFF" {
		add(name+" is OFF: commits wait for no replica while none is connected", "SET GLOBAL "+name+" = ON")
	}
	if has[prefix+"_status"] == "OFF" {
		add(prefix+"_status is OFF: commits wait for no replica now", "connect a replica with semi-synchronous replication")
	}
	return found
}

// readVariables calls use for each row of a statement that shows names and values.
func readVariables(l server.Runner, statement string, use func(name, value string)) error {
	return l.Query(statement, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		name, value := r.Text("name"), r.Text("value")
		if r.Err == nil {
			use(name, value)
		}
		return r.Err
	})
}

func tooOld(version string) bool {
	number, suffix, _ := strings.Cut(version, "-")
	if strings.Contains(suffix, "MariaDB") {
		return engine.OlderThan(strings.TrimPrefix(number, "5.5.5-"), mariadbOldest)
	}
	return engine.OlderThan(number, oldest)
}
