package sandboxes

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// alone runs fn in a transaction of which nothing is remembered. It goes through
// the store, where all who write wait in one line and share a commit. The
// caller's going away does not end it.
func (a *API) alone(ctx context.Context, fn func(context.Context, querier) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, stop := a.detach(ctx)
	defer stop()
	claim := onlyonce.Claim{
		ID:              onlyonce.ID{Operation: operation + " without a key", Key: rand.Text()},
		Owner:           rand.Text()[:16],
		SkipFingerprint: true, // nobody asks for it again
		Lease:           a.cfg.Lease,
	}
	var failed error
	_, err := a.store.RunTx(ctx, claim, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		failed = fn(ctx, tx)
		return onlyonce.Settlement{}, failed
	})
	if err != nil && failed == nil {
		return fmt.Errorf("%w: %w", onlyonce.ErrUnavailable, err)
	}
	return err
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
