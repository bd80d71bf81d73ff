package sandboxes

import (
	"context"
	"database/sql"
)

// transact runs fn in a transaction without recording it. It uses the store, in which
// concurrent writers share a queue and their commits.
func (a *API) transact(ctx context.Context, fn func(context.Context, querier) error) error {
	return a.guard.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) })
}

// change runs a statement that returns at most one row in its own transaction.
func (a *API) change(ctx context.Context, statement string, args ...any) (r row, found bool, err error) {
	err = a.transact(ctx, func(ctx context.Context, on querier) (err error) {
		r, found, err = one(ctx, on, statement, args...)
		return err
	})
	return r, found, err
}

// detach returns a context that outlives its caller for a limited time.
func (a *API) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Lease)
}
