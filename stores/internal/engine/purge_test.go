package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A purgedEngine is an engine of which only purges are called.
type purgedEngine struct {
	Engine
	purge func(ctx context.Context) (int, error)
}

func (e *purgedEngine) Purge(ctx context.Context, _ int) (int, error) { return e.purge(ctx) }
func (e *purgedEngine) Close() error                                  { return nil }

func TestPurging_TheDefaultIsEveryTenMinutesFromWithinTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		e := &purgedEngine{purge: func(context.Context) (int, error) {
			at = append(at, time.Since(began))
			return 0, nil
		}}
		c := NewClosable(e, NewPurging("sqlstore", 0, nil))
		time.Sleep(time.Hour)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		purges := len(at)
		time.Sleep(time.Hour)
		if len(at) != purges || purges != 6 || at[0] > time.Minute {
			t.Fatalf("purges at %v, %d before it was closed", at, purges)
		}
		for i, want := range at[1:] {
			if want-at[i] != 10*time.Minute {
				t.Errorf("purges at %v", at)
			}
		}
	})
}

func TestPurging_APauseAfterEachBatchLeavesTimeToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := []time.Duration{10 * time.Millisecond, time.Second}
		var began, ended []time.Time
		e := &purgedEngine{purge: func(context.Context) (int, error) {
			began = append(began, time.Now())
			n := 0
			if i := len(ended); i < len(batches) {
				time.Sleep(batches[i])
				n = 500
			}
			ended = append(ended, time.Now())
			return n, nil
		}}
		c := NewClosable(e, NewPurging("sqlstore", time.Hour, nil))
		time.Sleep(time.Hour)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if len(began) != 3 {
			t.Fatalf("%d batches", len(began))
		}
		for i, want := range []time.Duration{40 * time.Millisecond, longestPause} {
			if pause := began[i+1].Sub(ended[i]); pause != want {
				t.Errorf("a pause of %v after a batch that took %v, want %v", pause, batches[i], want)
			}
		}
	})
}

func TestPurging_NeverPurgeMeansNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &purgedEngine{purge: func(context.Context) (int, error) {
			t.Error("purged")
			return 0, nil
		}}
		c := NewClosable(e, NewPurging("sqlstore", NeverPurge, nil))
		time.Sleep(30 * 24 * time.Hour)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPurging_CloseInterruptsAPurgeWhichIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := []int{500, 7}
		e := &purgedEngine{purge: func(ctx context.Context) (int, error) {
			if len(batches) == 0 {
				<-ctx.Done()
				time.Sleep(time.Second) // the driver's way of ending a statement
				return 0, ctx.Err()
			}
			n := batches[0]
			batches = batches[1:]
			return n, nil
		}}
		var events []onlyonce.Event
		c := NewClosable(e, NewPurging("sqlstore", time.Minute, func(_ context.Context, ev onlyonce.Event) { events = append(events, ev) }))
		time.Sleep(time.Hour)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if len(events) != 1 || events[0].Purged != 507 || events[0].Err != nil {
			t.Errorf("%+v", events)
		}
	})
}

func TestPurging_ANegativeIntervalIsRejectedByName(t *testing.T) {
	defer func() {
		if p, _ := recover().(string); p != "sqlstore: Config.PurgeEvery is negative (-1m0s): write a positive value, or leave it 0 for the default, 10m0s" {
			t.Errorf("%q", p)
		}
	}()
	NewPurging("sqlstore", -time.Minute, nil)
	t.Error("it was accepted")
}
