package optimistic

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// The pauses between the tries of a call. The first tries follow at once.
const (
	atOnce       = 3
	firstPause   = time.Millisecond
	longestPause = 100 * time.Millisecond
)

// Repeat calls try until it has no error, or one after which no other try may succeed: again
// reports whether one may. If the time of the call is over before that, the error is what
// late makes of that of the last try, together with why that one was made.
func Repeat(ctx context.Context, limit time.Duration, try func(ctx context.Context) error, again func(error) bool, late func(error) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := firstPause
	var cause error // of the try before
	for n := 1; ; n++ {
		err := try(limited)
		switch {
		case err == nil:
			return nil
		case !again(err) && ctx.Err() == nil && limited.Err() != nil:
			return late(errors.Join(cause, err))
		case !again(err):
			return err
		}
		if cause = err; n < atOnce {
			continue
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-limited.Done():
			timer.Stop()
			if err := ctx.Err(); err != nil {
				return err
			}
			return late(err)
		}
		pause = min(2*pause, longestPause)
	}
}
