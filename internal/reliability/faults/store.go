//go:build linux

package faults

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// OpenStore opens a store of sqlstore on a pool of its own, with at most this number of
// connections, or any number if it is 0, and accepts the named risks. The returned function closes
// both.
func OpenStore(ctx context.Context, driver, dsn string, connections int, risks ...string) (*sqlstore.Store, func(), error) {
	db, err := Open(driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	if connections > 0 {
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
	}
	s, err := sqlstore.Open(ctx, db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge, AcceptRisks: risks})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return s, func() { _ = s.Close(); _ = db.Close() }, nil // the connections may have been cut
}

// OpenPgxStore opens a store of pgxstore on a pool of its own, with at most this number of
// connections. The returned function closes both.
func OpenPgxStore(ctx context.Context, dsn string, connections int32) (*pgxstore.Store, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	s, err := pgxstore.Open(ctx, pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return s, func() { _ = s.Close(); pool.Close() }, nil // the connections may have been cut
}
