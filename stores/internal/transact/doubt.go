package transact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// lookupTimeout bounds how long a store tries to find out whether a transaction was
// committed.
const lookupTimeout = 10 * time.Second

// resolve finds out whether a transaction whose COMMIT got no response was committed, and
// returns when it settled. If it was not committed, the error is cause. If that cannot be
// determined, or the server stays unreachable, it is ErrInDoubt.
func (r *run[TX]) resolve(cause error) (settledAt int64, err error) {
	ctx, cancel := context.WithTimeout(r.own, lookupTimeout)
	defer cancel()
	for n := 1; ; n++ {
		settledAt, err = r.findCommit(ctx)
		switch {
		case err == nil:
			return settledAt, nil
		case errors.Is(err, ErrNotCommitted):
			return 0, fmt.Errorf("%w: %w", err, cause)
		case errors.Is(err, ErrMovedOn):
			return 0, unknown(onlyonce.ErrInDoubt, err, cause)
		}
		if !Pause(ctx, time.Millisecond<<min(n, 9)) {
			return 0, unknown(onlyonce.ErrInDoubt, cause, err)
		}
	}
}

// unknown returns err, an ErrUnknown, with its causes. A cause that is ErrUnavailable is
// only quoted, because that error says that nothing ran.
func unknown(err error, causes ...error) error {
	for _, cause := range causes {
		if errors.Is(cause, onlyonce.ErrUnavailable) {
			err = fmt.Errorf("%w: %v", err, cause)
		} else {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	return err
}

// findCommit looks for the record that the transaction wrote, and returns once the record is
// durable.
func (r *run[TX]) findCommit(ctx context.Context) (settledAt int64, err error) {
	for flushed := false; ; flushed = true {
		now, err := r.on.Trace(ctx, &r.Command)
		if err != nil {
			return 0, err
		}
		c := Commit{Token: r.Token, Fence: r.Record.Fence, Before: r.Seen.Token}
		if err := c.Committed(now); err != nil || flushed && now.Server == 0 {
			return now.SettledAt, err
		}
		if again, err := r.on.Flushed(ctx, &r.Command, now.Server); err != nil || !again {
			return now.SettledAt, err
		}
		if now.Server != 0 && !Pause(ctx, time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}
