package integration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// A paced load calls f so many times per second from several callers, for so long or until done
// is closed. A call that could not begin in time, because all callers were busy, counts from when
// it was due.
type paced struct {
	perSecond, callers int
	lasts              time.Duration
	done               <-chan struct{} // nil: never closed
}

// A sample is how long a call took, and when it was due, from the beginning of the load.
type sample struct{ due, took time.Duration }

// run returns the samples, in the order of when they were due.
func (p paced) run(b *testing.B, f func(ctx context.Context) error) (all []sample) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	began := time.Now()
	each := time.Duration(p.callers) * time.Second / time.Duration(p.perSecond)
	of := make([][]sample, p.callers)
	var wg sync.WaitGroup
	for i := range p.callers {
		wg.Go(func() {
			due := each * time.Duration(i) / time.Duration(p.callers)
			for ; due < p.lasts; due += each {
				select {
				case <-time.After(time.Until(began.Add(due))):
				case <-p.done:
					return
				}
				if err := f(ctx); err != nil {
					b.Error(err)
					cancel()
					return
				}
				of[i] = append(of[i], sample{due, time.Since(began) - due})
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	all = slices.Concat(of...)
	slices.SortFunc(all, func(x, y sample) int { return int(x.due - y.due) })
	return all
}

// percentile returns the time, in milliseconds, within which so many of a hundred calls ended.
func percentile(p int, all []sample) float64 {
	took := make([]time.Duration, len(all))
	for i, s := range all {
		took[i] = s.took
	}
	slices.Sort(took)
	return float64(took[(len(took)-1)*p/100].Microseconds()) / 1000
}
