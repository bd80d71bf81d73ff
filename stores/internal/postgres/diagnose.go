package postgres

import (
	"database/sql/driver"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// oldest is the oldest version that the store supports.
const oldest = 130000

// The names of the findings of Diagnose on a PostgreSQL server, besides
// engine.RiskReplica and engine.RiskOldVersion.
const (
	riskFsync    = "fsync"
	riskPages    = "full-page-writes"
	riskStandby  = "synchronous-commit"
	riskEncoding = "encoding"
	riskSequence = "outbox-sequence"
)

var risks = []string{riskFsync, riskPages, riskStandby, riskSequence}

func (dialect) Diagnose(l server.Runner) (found []onlyonce.Finding, err error) {
	add := func(name, problem, fix string) { found = append(found, engine.NewFinding(name, problem, fix)) }
	outbox := false
	err = l.Query("settings", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		number, version, encoding, replica := r.Int("version"), r.Text("version"), r.Text("encoding"), r.Int("replica") != 0
		fsync, pages, commit, standbys, readOnly := r.Text("fsync"), r.Text("pages"), r.Text("commit"), r.Text("standbys"), r.Text("read only")
		client := r.Text("client_encoding")
		outbox = r.Int("outbox") != 0
		if number < oldest {
			add(engine.RiskOldVersion, "PostgreSQL is "+version, "use 13 or newer")
		}
		if encoding != "UTF8" {
			add(riskEncoding, "the database's encoding is "+encoding+", which can't hold every text", "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0")
		}
		if client != "UTF8" && client != "SQL_ASCII" {
			add(riskEncoding, "client_encoding is "+client+": texts are kept as other characters than those that other connections send, or are errors", "set client_encoding = UTF8 for the role and in the connections' options")
		}
		if replica || readOnly == "on" {
			add(engine.RiskReplica, "the server is a replica or read-only: it may lack the latest records, and nothing can be claimed", "connect to the primary (target_session_attrs=read-write), with default_transaction_read_only = off")
		}
		if fsync != "on" {
			add(riskFsync, "fsync is "+fsync+": what was committed can be lost, and the database corrupted, with the machine's power", "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()")
		}
		if pages != "on" {
			add(riskPages, "full_page_writes is "+pages+": a crash of the system can corrupt the database", "ALTER SYSTEM SET full_page_writes = on; SELECT pg_reload_conf()")
		}
		if standbys != "" && (commit == "local" || commit == "remote_write") {
			add(riskStandby, fmt.Sprintf("synchronous_commit is %s although there are synchronous standbys: a failover can lose what was committed", commit),
				"SET synchronous_commit = on for the role or in the connection's options")
		}
		return r.Err
	})
	if err != nil || !outbox {
		return found, err
	}
	behind, err := sequenceIsBehind(l)
	if behind {
		add(riskSequence, "the sequence of onlyonce_outbox is behind its messages, as after they were copied: new messages come before older ones of their keys, or are rejected",
			"SELECT setval(pg_get_serial_sequence('onlyonce_outbox', 'seq'), (SELECT max(seq) FROM onlyonce_outbox))")
	}
	return found, err
}

// sequenceIsBehind reports whether a message has a number that the sequence will give again. One statement reads
// both, and the messages as they were before: more may be appended meanwhile.
func sequenceIsBehind(l server.Runner) (behind bool, err error) {
	var sequence string
	err = l.Query("sequence", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		sequence = r.Text("sequence")
		return r.Err
	})
	if sequence == "" || err != nil {
		return false, err
	}
	err = l.Again(func() error { // pg_sequence_last_value is NULL after RESTART WITH and setval(…, false)
		query := "SELECT coalesce((SELECT max(seq) FROM onlyonce_outbox), 0) >= last_value + is_called::int FROM " + sequence // its name is quoted where it has to be
		return l.DB.QueryRowContext(l.Ctx, query).Scan(&behind)
	})
	return behind, err
}
