package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// commitLookupTimeout bounds how long the store tries to find out whether a
// transaction was committed.
const commitLookupTimeout = 10 * time.Second

// resolveCommit finds out whether the transaction was committed after its COMMIT was
// not answered, and returns when it settled. If it was not committed, the error is
// cause; it is ErrUnknown if that cannot be known, or the server stays unreachable.
func (r *run) resolveCommit(cause error) (settled int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitLookupTimeout)
	defer cancel()
	r.doubt.Fence = r.record.Fence
	for n := 1; ; n++ {
		settled, err = r.findCommit(ctx)
		switch {
		case err == nil:
			return settled, nil
		case errors.Is(err, transact.ErrNotCommitted):
			return 0, fmt.Errorf("%w: %w", err, cause)
		case errors.Is(err, transact.ErrMovedOn):
			return 0, fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, err, cause)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, cause, err)
		case <-time.After(rand.N(time.Millisecond << min(n, 9))):
		}
	}
}

// findCommit waits on another connection until the run's transaction has ended,
// which gives its lock back, and looks for what it left.
func (r *run) findCommit(ctx context.Context) (settled int64, err error) {
	err = r.store.alone(ctx, func(conn *pgx.Conn) error {
		tx := &tx{conn: conn}
		if _, err := conn.Exec(ctx, beginRead); err != nil {
			return err
		}
		defer tx.end(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, pgschema.Text["ended"], transact.TokenLock(r.doubt.Token)); err != nil {
			return err
		}
		var now transact.Trace
		if err := conn.QueryRow(ctx, pgschema.Text["trace"], r.key.hash[:]).Scan(&now.Fence, &now.SettledAt, &now.Token, &now.Floor); err != nil {
			return err
		}
		settled = now.SettledAt
		return r.doubt.Committed(now)
	})
	return settled, err
}
