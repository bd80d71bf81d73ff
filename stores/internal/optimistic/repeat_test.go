package optimistic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeat_ACallThatIsLateSaysWhyItWasTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, tries := errors.New("busy"), 0
		err := Repeat(t.Context(), time.Second, func(ctx context.Context) error {
			if tries++; tries <= atOnce {
				return busy
			}
			<-ctx.Done()
			return ctx.Err()
		}, func(err error) bool { return errors.Is(err, busy) }, func(err error) error { return err })
		if !errors.Is(err, busy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}
