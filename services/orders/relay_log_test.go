package orders

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/outbox"
)

func TestLogEvents_AQueueThatIsAwayDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		observe := logEvents(slog.New(slog.NewTextHandler(&log, nil)))
		for range 120 { // two minutes
			observe(t.Context(), outbox.Event{Outcome: outbox.OutcomeTrouble, Err: errors.New("no route")})
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "event=outbox_trouble"); n != 2 {
			t.Errorf("%d lines in two minutes", n)
		}
		for range 3 {
			observe(t.Context(), outbox.Event{Outcome: outbox.OutcomeTrouble, Count: 5, Err: errors.New("no route")})
		}
		if n := strings.Count(log.String(), "count=5"); n != 3 {
			t.Errorf("%d of 3 failures to mark messages are logged", n)
		}
	})
}
