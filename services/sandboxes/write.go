package sandboxes

import (
	"context"
	"database/sql"
)

// alone runs fn in a transaction of which nothing is remembered. It goes through
// the store, where all who write wait in one line and share a commit.
func (a *API) alone(ctx context.Context, fn func(context.Context, querier) error) error {
	return a.guard.Transact(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) })
}

// change runs a statement that yields at most one row, alone.
func (a *API) change(ctx context.Context, statement string, args ...any) (r row, found bool, err error) {
	err = a.alone(ctx, func(ctx context.Context, on querier) (err error) {
		r, found, err = one(ctx, on, statement, args...)
		return err
	})
	return r, found, err
}

// detach makes a context that outlives its caller, but not for ever.
func (a *API) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Lease)
}
