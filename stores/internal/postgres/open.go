package postgres

import (
	"context"
	"database/sql"
	"strings"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// Is reports whether a version, as the server reports it, is that of PostgreSQL.
func Is(version string) bool {
	return strings.HasPrefix(version, "PostgreSQL ") && server.Other(version) == ""
}

// Open opens the store on a database that has been migrated. It prepares nothing: a
// prepared statement of the pool's would not survive PgBouncer in transaction mode. A
// driver may prepare by itself.
func Open(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, error) {
	s := server.New(db, dialect{new(Standbys)}, risks)
	if err := s.Check(ctx, acceptRisks); err != nil {
		return nil, err
	}
	groupWrites(ctx, s)
	return s, nil
}

// OpenReader returns a reader of the records in a database that has been migrated. It needs
// only the right to read the tables, and the server may be a replica.
func OpenReader(ctx context.Context, db *sql.DB) (engine.Reader, error) {
	s := server.New(db, dialect{new(Standbys)}, risks)
	return s, s.CheckSchema(ctx)
}
