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

// unidentified finds out whether there is a store.
var unidentified = dialect{Text, new(Standbys)}

// Open opens the store on a database that has been migrated. It prepares nothing: a
// prepared statement of the pool's would not survive PgBouncer in transaction mode. A
// driver may prepare by itself.
func Open(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, error) {
	e, _, err := OpenIdentified(ctx, db, acceptRisks)
	return e, err
}

// OpenIdentified opens the store as Open does, and returns its identity.
func OpenIdentified(ctx context.Context, db *sql.DB, acceptRisks []string) (engine.Engine, Identity, error) {
	if err := server.New(db, unidentified, risks).Check(ctx, acceptRisks); err != nil {
		return nil, "", err
	}
	identity, err := identityOf(ctx, db)
	if err != nil {
		return nil, "", err
	}
	p := dialect{identity.In(Text), new(Standbys)}
	s := server.New(db, p, risks)
	p.groupWrites(ctx, s)
	return s, identity, nil
}

// OpenReader returns a reader of the records in a database that has been migrated. It needs
// only the right to read the tables, and the server may be a replica.
func OpenReader(ctx context.Context, db *sql.DB) (engine.Reader, error) {
	if err := server.New(db, unidentified, risks).CheckSchema(ctx); err != nil {
		return nil, err
	}
	identity, err := identityOf(ctx, db)
	return server.New(db, dialect{identity.In(Text), new(Standbys)}, risks), err
}
