package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// postgresOldest is the oldest version that is maintained and tested for.
const postgresOldest = 130000

// The names of what Diagnose may find on a PostgreSQL server.
const (
	riskFsync      = "fsync"
	riskPages      = "full-page-writes"
	riskStandby    = "synchronous-commit"
	riskReplica    = "replica"
	riskEncoding   = "encoding"
	riskOldVersion = "server-version"
)

var postgresRisks = []string{riskFsync, riskPages, riskStandby}

// openPostgres prepares nothing: a prepared statement of the pool's would not
// survive PgBouncer in transaction mode. A driver may prepare by itself.
func openPostgres(ctx context.Context, db *sql.DB, cfg Config) (*server, error) {
	s := &server{db: db, dialect: postgres{}, risks: postgresRisks}
	if err := s.check(ctx, cfg); err != nil {
		return nil, err
	}
	groupPostgres(ctx, s)
	return s, nil
}

// check refuses a server whose settings or schema do not fit.
func (s *server) check(ctx context.Context, cfg Config) error {
	findings, err := s.diagnose(ctx)
	if err != nil {
		return err
	}
	if err := refuse(findings, cfg.AcceptRisks, s.risks); err != nil {
		return err
	}
	list, err := Migrations(s.dialect.engine())
	if err != nil {
		return err
	}
	have, err := s.dialect.version(ctx, s.db)
	if err != nil {
		return err
	}
	return checkVersion(have, list)
}

func (postgres) diagnose(l serverSession) (found []onlyonce.Finding, err error) {
	add := func(name, problem, mend string) { found = append(found, newFinding(name, problem, mend)) }
	err = l.query("settings", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		number, version, encoding, replica := r.Int("version"), r.Text("version"), r.Text("encoding"), r.Int("replica") != 0
		fsync, pages, commit, standbys, readOnly := r.Text("fsync"), r.Text("pages"), r.Text("commit"), r.Text("standbys"), r.Text("read only")
		if number < postgresOldest {
			add(riskOldVersion, "PostgreSQL is "+version, "use 13 or newer")
		}
		if encoding != "UTF8" {
			add(riskEncoding, "the database's encoding is "+encoding+", which can't hold every text", "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0")
		}
		if replica || readOnly == "on" {
			add(riskReplica, "the server is a replica or read-only: it knows too little, and nothing can be claimed", "connect to the primary (target_session_attrs=read-write), with default_transaction_read_only = off")
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

// version is 0 if there is no schema.
func (postgres) version(ctx context.Context, on rowQuerier) (version int, err error) {
	var there bool
	if err := on.QueryRowContext(ctx, pgschema.Text["tables"]).Scan(&there); err != nil || !there {
		return 0, err
	}
	return version, on.QueryRowContext(ctx, pgschema.Text["version"]).Scan(&version)
}

// taken are the errors of a relation, a type and a function whose name is in use.
var taken = []string{"42P07", "42710", "42723"}

// migratePostgres runs what is missing in one transaction, which it is alone
// in.
func migratePostgres(ctx context.Context, db *sql.DB) (err error) {
	list, err := Migrations(enginePostgres)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if _, err := tx.ExecContext(ctx, pgschema.Text["migrate alone"]); err != nil {
		return err
	}
	have, err := postgres{}.version(ctx, tx)
	if err != nil {
		return err
	}
	if have > len(list) {
		return checkVersion(have, list)
	}
	for _, m := range list[have:] {
		_, err := tx.ExecContext(ctx, m.SQL)
		var e interface{ SQLState() string }
		if errors.As(err, &e) && slices.Contains(taken, e.SQLState()) {
			err = foreign(err)
		}
		if err != nil {
			return fmt.Errorf("version %d: %w", m.Version, err)
		}
	}
	return tx.Commit()
}
