package server

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Common holds the statements that are the same on every server, in the form that
// record.Blocks reads.
//
//go:embed server.sql
var Common string

var common = record.Blocks(Common)

// Version returns the version that the server reports, with its name.
func Version(ctx context.Context, db *sql.DB) (version string, err error) {
	return version, db.QueryRowContext(ctx, common["server version"]).Scan(&version)
}

// others are databases that speak the protocol of PostgreSQL or MySQL, by what is in the version
// that they report.
var others = []struct{ mark, name string }{
	{"CockroachDB", "CockroachDB"}, {"-YB-", "YugabyteDB"}, {"-TiDB-", "TiDB"}, {"-Vitess", "Vitess"}, {"OceanBase", "OceanBase"},
}

// Other returns the name of a database that speaks the protocol of PostgreSQL or MySQL and is
// neither, by the version that it reports; "": it is not known to be one.
func Other(version string) string {
	for _, o := range others {
		if strings.Contains(version, o.mark) {
			return o.name
		}
	}
	return ""
}

// Unsupported returns the error of a database for which there is no engine. supported says for
// which there is one.
func Unsupported(supported, version string) error {
	if name := Other(version); name != "" {
		return fmt.Errorf("%s; this database is %s, which speaks the protocol of one of them, but its locks and its clock are others: keep the records in one of those, or in Redis, NATS JetStream or etcd (version: %s)", supported, name, version)
	}
	return fmt.Errorf("%s; this database is %s", supported, version)
}

// Check rejects a server whose settings or schema do not fit.
func (s *Store) Check(ctx context.Context, acceptRisks []string) error {
	findings, err := s.Diagnose(ctx)
	if err != nil {
		return err
	}
	if err := engine.Reject(findings, acceptRisks, s.risks); err != nil {
		return err
	}
	return s.CheckSchema(ctx)
}

// CheckSchema rejects a schema of another version.
func (s *Store) CheckSchema(ctx context.Context) error {
	have, err := engine.SchemaVersion(ctx, s.DB, s.dialect.Statements())
	if err != nil {
		return err
	}
	return engine.CheckVersion(have, s.dialect.Schema())
}
