package storeurl

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

type pgxRecords struct {
	*pgxstore.Store
	pool *pgxpool.Pool
}

func (r pgxRecords) Close() error {
	err := r.Store.Close()
	r.pool.Close()
	return err
}

// openPgx opens a store on PostgreSQL that is notified of settlements by other processes.
func (u URL) openPgx(ctx context.Context, cfg sqlstore.Config, noMigrate bool) (Records, error) {
	poolConfig, err := u.PoolConfig()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", u, err)
	}
	fail := func(err error) (Records, error) {
		pool.Close()
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		return fail(fmt.Errorf("open %v: %w", u, err))
	}
	if !noMigrate {
		if err := pgxstore.Migrate(ctx, pool); err != nil {
			return fail(fmt.Errorf("%v: %w", u, err))
		}
	}
	store, err := pgxstore.Open(ctx, pool, pgxstore.Config{AcceptRisks: u.Risks(cfg.AcceptRisks), PurgeEvery: cfg.PurgeEvery, Observer: cfg.Observer})
	if err != nil {
		return fail(fmt.Errorf("%v: %w", u, err))
	}
	return pgxRecords{store, pool}, nil
}
