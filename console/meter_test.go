package console

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func requested(o onlyonce.Outcome, d time.Duration) onlyonce.Event {
	return onlyonce.Event{Outcome: o, Record: onlyonce.Record{ID: payment, State: onlyonce.StateCompleted}, Duration: d}
}

func TestMeter_EventsOfFiveMinutesAreCountedAndThenForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMeter()
		time.Sleep(1500 * time.Millisecond)
		const callers, each = 8, 1000
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					m.Observe(t.Context(), requested(onlyonce.OutcomeExecuted, 10*time.Millisecond))
					m.Observe(t.Context(), requested(onlyonce.OutcomeReplayed, time.Millisecond))
					m.Observe(t.Context(), requested(onlyonce.OutcomeWaited, time.Hour))
					m.Observe(t.Context(), requested("unprotected", 0))
					m.Observe(t.Context(), onlyonce.Event{Outcome: onlyonce.OutcomeFailed}) // without a key
				}
			})
		}
		all.Wait()
		for range (meterSeconds - 2*barSeconds) / barSeconds {
			s := m.sample()
			if got := s.counts; got[indexOf(onlyonce.OutcomeExecuted)] != callers*each || got[indexOf(onlyonce.OutcomeReplayed)] != callers*each || got[len(got)-1] != callers*each || got[indexOf(onlyonce.OutcomeFailed)] != 0 {
				t.Fatalf("after %v: %v", time.Since(m.start), got)
			}
			time.Sleep(barSeconds * time.Second)
		}
		time.Sleep(2 * barSeconds * time.Second)
		if s := m.sample(); s.counts != [len(meterOutcomes)]int{} || s.bars != [bars][groups]int{} {
			t.Errorf("after %v: %v", time.Since(m.start), s.counts)
		}
		time.Sleep(meterSeconds * time.Second)
		m.Observe(t.Context(), requested(onlyonce.OutcomeExecuted, 0))
		if s := m.sample(); s.counts[0] != 1 || s.bars[bars-1][executed] != 1 || s.total[0] != 1 {
			t.Errorf("after a pause: %v, %v", s.counts, s.total)
		}
	})
}

func TestMeter_APercentileIsRightWithinAnEighth(t *testing.T) {
	m := NewMeter()
	for n := range 1000 {
		m.Observe(t.Context(), requested(onlyonce.OutcomeExecuted, time.Duration(n+1)*time.Millisecond))
	}
	s := m.sample()
	for p, want := range map[int]time.Duration{50: 500 * time.Millisecond, 95: 950 * time.Millisecond, 99: 990 * time.Millisecond} {
		if got, ok := s.percentile(0, p); !ok || got < want || got > want+want/8 {
			t.Errorf("%d%% took %v", p, got)
		}
	}
	if _, ok := s.percentile(1, 50); ok {
		t.Error("nothing was replayed")
	}
	for _, d := range []time.Duration{-time.Second, 0, 7 * time.Microsecond, 8 * time.Microsecond, 15 * time.Microsecond, 16 * time.Microsecond, time.Second, time.Minute, 1000 * time.Hour} {
		if got := longestIn(bucketOf(d)); d < time.Hour && d > 0 && (got < d || got > d+d/8) || bucketOf(d) < 0 || bucketOf(d) >= maxBuckets {
			t.Errorf("%v is in the bucket %d up to %v", d, bucketOf(d), got)
		}
	}
}

func BenchmarkMeter_Observe(b *testing.B) {
	m, e, ctx := NewMeter(), requested(onlyonce.OutcomeExecuted, time.Millisecond), b.Context()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			m.Observe(ctx, e)
		}
	})
}
