package server

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// doubtful is how long a commit without an answer is looked for.
const doubtful = 10 * time.Second

// resolveCommit finds out whether a transaction was committed whose commit returned an
// error.
func (t *txAttempt) resolveCommit(cause error) error {
	t.close()
	ctx, cancel := context.WithTimeout(t.in.Ctx, doubtful)
	defer cancel()
	for n := 1; ; n++ {
		err := t.findCommit(ctx)
		switch {
		case err == nil:
			t.recorded = true
			t.settled()
			return nil
		case errors.Is(err, transact.ErrNotCommitted):
			return fmt.Errorf("%w: %w", err, cause)
		case errors.Is(err, transact.ErrMovedOn):
			return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, err, cause)
		}
		if !pause(ctx, 10*n) {
			return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, cause, err)
		}
	}
}

// ErrStillRunning is the error of a dialect that has waited for the end of a transaction.
var ErrStillRunning = errors.New("the transaction has not ended at the server")

// findCommit waits on another connection until the transaction has ended, and
// looks for what it left.
func (t *txAttempt) findCommit(ctx context.Context) error {
	conn, err := t.DB.Conn(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(t.dialect.Ended(ctx, conn, t.token), conn.Close()); err != nil {
		return err
	}
	var now transact.Trace
	err = t.Session(ctx).Query("trace", func(v []driver.Value) (err error) {
		now, err = transact.ReadTrace(v)
		return err
	}, t.key.Hash[:])
	if err != nil {
		return err
	}
	c := transact.Commit{Token: t.token, Fence: t.record.Fence, Before: t.seen.Token}
	if err := c.Committed(now); err != nil {
		return err
	}
	_, err = t.Session(ctx).find(&t.key) // which returns once it is on disk
	return err
}
