package server

import (
	"context"
	"database/sql"
	_ "embed"

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

// Check rejects a server whose settings or schema do not fit.
func (s *Store) Check(ctx context.Context, acceptRisks []string) error {
	findings, err := s.Diagnose(ctx)
	if err != nil {
		return err
	}
	if err := engine.Reject(findings, acceptRisks, s.risks); err != nil {
		return err
	}
	have, err := s.dialect.Version(ctx, s.DB)
	if err != nil {
		return err
	}
	return engine.CheckVersion(have, s.dialect.Schema())
}
