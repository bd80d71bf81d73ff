package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// oldest is the oldest version that is maintained and tested for.
const oldest = 130000

// The names of what Diagnose may find on a PostgreSQL server, besides riskReplica
// and riskOldVersion.
const (
	riskFsync    = "fsync"
	riskPages    = "full-page-writes"
	riskStandby  = "synchronous-commit"
	riskEncoding = "encoding"
)

var risks = []string{riskFsync, riskPages, riskStandby}

// Is reports whether a server is PostgreSQL by what it says that it is.
func Is(version string) bool { return strings.HasPrefix(version, "PostgreSQL ") }

// Open prepares nothing: a prepared statement of the pool's would not
// survive PgBouncer in transaction mode. A driver may prepare by itself.
func Open(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, error) {
	s := server.New(db, dialect{}, risks)
	if err := s.Check(ctx, acceptRisks); err != nil {
		return nil, err
	}
	groupWrites(ctx, s)
	return s, nil
}

func (dialect) Diagnose(l server.Session) (found []onlyonce.Finding, err error) {
	add := func(name, problem, mend string) { found = append(found, engine.NewFinding(name, problem, mend)) }
	err = l.Query("settings", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		number, version, encoding, replica := r.Int("version"), r.Text("version"), r.Text("encoding"), r.Int("replica") != 0
		fsync, pages, commit, standbys, readOnly := r.Text("fsync"), r.Text("pages"), r.Text("commit"), r.Text("standbys"), r.Text("read only")
		if number < oldest {
			add(engine.RiskOldVersion, "PostgreSQL is "+version, "use 13 or newer")
		}
		if encoding != "UTF8" {
			add(riskEncoding, "the database's encoding is "+encoding+", which can't hold every text", "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0")
		}
		if replica || readOnly == "on" {
			add(engine.RiskReplica, "the server is a replica or read-only: it knows too little, and nothing can be claimed", "connect to the primary (target_session_attrs=read-write), with default_transaction_read_only = off")
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
	return found, err
}

// Version is 0 if there is no schema.
func (dialect) Version(ctx context.Context, on engine.RowQuerier) (version int, err error) {
	var there bool
	if err := on.QueryRowContext(ctx, Text["tables"]).Scan(&there); err != nil || !there {
		return 0, err
	}
	return version, on.QueryRowContext(ctx, Text["version"]).Scan(&version)
}

// Migrations are the versions of the schema.
var Migrations = engine.ReadMigrations(migrationFiles)

// taken are the errors of a relation, a type and a function whose name is in use.
var taken = []string{"42P07", "42710", "42723"}

// Migrate runs what is missing in one transaction, which it is alone
// in.
func Migrate(ctx context.Context, db *sql.DB) (err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if _, err := tx.ExecContext(ctx, Text["migrate alone"]); err != nil {
		return err
	}
	have, err := dialect{}.Version(ctx, tx)
	if err != nil {
		return err
	}
	if have > len(Migrations) {
		return engine.CheckVersion(have, len(Migrations))
	}
	for _, m := range Migrations[have:] {
		_, err := tx.ExecContext(ctx, m.SQL)
		var e interface{ SQLState() string }
		if errors.As(err, &e) && slices.Contains(taken, e.SQLState()) {
			err = engine.NameTaken(err)
		}
		if err != nil {
			return fmt.Errorf("version %d: %w", m.Version, err)
		}
	}
	return tx.Commit()
}
