package pgxstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// Migrate upgrades the schema, which is that of sqlstore, to the version that
// this package needs. It never deletes anything. When several processes call it
// at the same time, one of them does the work and the others wait.
func Migrate(ctx context.Context, pool *pgxpool.Pool) (err error) {
	db := database(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkServer(ctx, db); err != nil {
		return wrap("migrate", err)
	}
	return wrap("migrate", postgres.Migrate(ctx, db))
}

func database(pool *pgxpool.Pool) *sql.DB {
	if pool == nil {
		panic("pgxstore: there is no pool: pass what pgxpool.New returned")
	}
	return stdlib.OpenDBFromPool(pool)
}

// A maintenance is the engine for PostgreSQL over database/sql, on the same pool. It
// has the operations that need not be fast: it checks the settings of the server and the schema,
// reads the audit trail, counts and purges records, and leases the messages of the outbox.
// It is closed with the store.
type maintenance struct {
	*engine.Closable
	db   *sql.DB
	text map[string]string // the statements of the store
}

func openMaintenance(ctx context.Context, pool *pgxpool.Pool, cfg Config) (maintenance, error) {
	purging := engine.NewPurging("pgxstore", cfg.PurgeEvery, cfg.Observer)
	db := database(pool)
	err := checkServer(ctx, db)
	if err != nil {
		return maintenance{}, errors.Join(err, db.Close())
	}
	e, identity, err := postgres.OpenIdentified(ctx, db, cfg.AcceptRisks)
	if err != nil {
		return maintenance{}, errors.Join(err, db.Close())
	}
	return maintenance{engine.NewClosable(e, purging), db, identity.In(sqlText)}, nil
}

// checkServer rejects a server that only speaks the protocol of PostgreSQL, such as
// CockroachDB: its locks and its clock are others.
func checkServer(ctx context.Context, db *sql.DB) error {
	version, err := server.Version(ctx, db)
	if err == nil && !postgres.Is(version) {
		err = server.Unsupported("PostgreSQL 13 and newer are supported", version)
	}
	return err
}

func (m maintenance) close() error { return errors.Join(m.Close(), m.db.Close()) }

// Diagnose finds settings of the server and of the pool's connections that
// would break the promise.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	found, err := s.maintenance.Diagnose(ctx)
	return found, wrap("diagnose", err)
}

// Purge deletes at most limit expired records, a thousand at a time.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	n, err := s.maintenance.Purge(ctx, limit)
	return n, wrap("purge", err)
}

// AuditTrail returns the decisions of people about the command id, oldest first.
func (s *Store) AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	entries, err := s.maintenance.AuditTrail(ctx, id)
	return entries, wrap("read the audit trail", err)
}

// CountRecords counts records by tenant, operation and state. It reads the whole table.
func (s *Store) CountRecords(ctx context.Context) ([]onlyonce.RecordCount, error) {
	all, err := s.maintenance.CountRecords(ctx)
	return all, wrap("count records", err)
}

// Unresolved counts the records whose outcome is unknown: those in the unknown
// state, those whose lease has lapsed, and those in a state that no store writes.
// It also returns for how long the oldest of them has been unresolved. It uses an
// index of the unresolved and running records.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.maintenance.Unresolved(ctx)
	return n, oldest, wrap("count unresolved records", err)
}
