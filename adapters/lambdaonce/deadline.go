package lambdaonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// longestReserve is how much of an invocation's time is at most left for recording its outcome.
const longestReserve = time.Second

// endOf returns when the function that an invocation runs must have returned: a quarter of the
// time that is left, but at most longestReserve, before the invocation is killed. Zero: never.
func endOf(invocation context.Context) time.Time {
	killed, ok := invocation.Deadline()
	if !ok {
		return time.Time{}
	}
	return killed.Add(-min(time.Until(killed)/4, longestReserve))
}

// until returns a context that ends with ctx or at a point in time, if that is not zero.
func until(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	if at.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, at)
}

// isOver reports whether that point in time has come.
func isOver(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }

var errLate = errors.New("the time of the invocation was over")

// late returns the error of a function whose context was ctx. If that had ended, it is not
// known what the function has done, unless the error is Final.
func late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || onlyonce.Failure(err).Final {
		return err
	}
	return onlyonce.Unknown(fmt.Errorf("%w: %w", err, errLate))
}
