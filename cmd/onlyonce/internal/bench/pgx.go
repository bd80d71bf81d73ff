package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// schemePgx is the scheme of a PostgreSQL server that bench uses through pgxstore,
// like proxy, and not through sqlstore, like serve.
const schemePgx = "pgx://"

// openPgx opens a store whose tables exist already. shown is its URL without the
// password.
func openPgx(ctx context.Context, raw string, acceptRisks []string) (store *pgxstore.Store, shown string, shut func() error, err error) {
	u, err := storeurl.Parse("postgres://" + strings.TrimPrefix(raw, schemePgx))
	if err != nil {
		return nil, "", nil, err
	}
	shown = schemePgx + strings.TrimPrefix(u.String(), "postgres://")
	cfg, err := u.PoolConfig()
	if err != nil {
		return nil, "", nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, "", nil, fmt.Errorf("open %s: %w", shown, err)
	}
	store, err = pgxstore.Open(ctx, pool, pgxstore.Config{AcceptRisks: acceptRisks, PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		pool.Close()
		return nil, "", nil, fmt.Errorf("%s: %w", shown, err)
	}
	return store, shown, func() error {
		err := store.Close()
		pool.Close()
		return err
	}, nil
}
