package pgxstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// Migrate upgrades the schema, which is that of sqlstore, to the version that
// this package needs. It never deletes anything. When several processes call it
// at the same time, one of them does the work and the others wait.
func Migrate(ctx context.Context, pool *pgxpool.Pool) (err error) {
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	return wrap("migrate", sqlstore.Migrate(ctx, db))
}

// plain is sqlstore on the same pool. It checks the settings of the server.
type plain struct {
	*sqlstore.Store
	db *sql.DB
}

// openPlain refuses a server whose settings would break the promise, and a
// schema that does not fit.
func openPlain(ctx context.Context, pool *pgxpool.Pool, cfg Config) (plain, error) {
	db := stdlib.OpenDBFromPool(pool)
	s, err := sqlstore.Open(ctx, db, sqlstore.Config{AcceptRisks: cfg.AcceptRisks})
	if err != nil {
		return plain{}, errors.Join(err, db.Close())
	}
	return plain{s, db}, nil
}

func (p plain) close() error { return errors.Join(p.Close(), p.db.Close()) }

// Diagnose finds settings of the server and of the pool's connections that
// would break the promise.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	found, err := s.plain.Diagnose(ctx)
	return found, wrap("diagnose", err)
}
