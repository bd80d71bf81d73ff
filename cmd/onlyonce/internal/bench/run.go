package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A targetRun is one target under load, in one or more slices.
type targetRun struct {
	cfg    *config
	target target
	keys   *keySet
	meter  meter
	active atomic.Int64 // nanoseconds under load, of the slices that have ended
	since  atomic.Int64 // when the current slice began, in Unix nanoseconds; 0: there is none
	rates  []float64    // requests per second in each slice
	left   int64        // requests that may still be sent; negative: any number
}

func newTargetRun(c *config, t target) *targetRun {
	r := &targetRun{cfg: c, target: t, keys: newKeySet(c, t.keeps()), left: c.requests}
	if c.requests == 0 {
		r.left = -1
	}
	return r
}

// over reports whether the run has used up its time or its requests.
func (r *targetRun) over() bool {
	return r.left == 0 || time.Duration(r.active.Load()) >= r.cfg.duration
}

// The slices of a comparison.
const (
	sliceCount    = 20
	shortestSlice = 50 * time.Millisecond
	longestSlice  = time.Second
)

const (
	patience = 30 * time.Second      // for requests that are still running at the end
	respite  = 10 * time.Millisecond // before the next request to a target that does not respond
)

// lasted returns how long the target has been under load so far.
func (r *targetRun) lasted() time.Duration {
	d := time.Duration(r.active.Load())
	if since := r.since.Load(); since > 0 {
		d += time.Since(time.Unix(0, since))
	}
	return d
}

// takeTurns gives each run its time: a single run in one piece, two runs in slices.
// The run that goes first alternates, too, so that drift affects both equally.
func takeTurns(ctx context.Context, c *config, runs []*targetRun) {
	d, n := c.duration, c.requests
	if len(runs) > 1 {
		d = min(max(c.duration/sliceCount, shortestSlice), longestSlice)
		n = max(c.requests/sliceCount, min(c.requests, 1))
	}
	for round := 0; ctx.Err() == nil; round++ {
		over := true
		for i := range runs {
			r := runs[(i+round)%len(runs)]
			if !r.over() && ctx.Err() == nil {
				r.runSlice(ctx, d, n)
				over = false
			}
		}
		if over {
			return
		}
	}
}

// runSlice puts the target under load for the time d, and for at most n requests if n
// is not 0. It waits a limited time for the responses to requests that were sent.
func (r *targetRun) runSlice(ctx context.Context, d time.Duration, n int64) {
	if r.left >= 0 {
		n = min(n, r.left)
	}
	d = min(d, r.cfg.duration-time.Duration(r.active.Load()))
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s := &timeSlice{run: r, began: time.Now(), requests: n}
	s.end = s.began.Add(d)
	end, release := context.WithDeadline(ctx, s.end)
	defer release()
	defer time.AfterFunc(d+patience, stop).Stop()
	r.since.Store(s.began.UnixNano())
	var calling sync.WaitGroup
	for caller := range r.cfg.callers {
		calling.Go(func() { s.call(end, asking, caller) })
	}
	calling.Wait()
	took := time.Since(s.began)
	r.since.Store(0)
	r.active.Add(int64(took))
	sent := s.sent.Load()
	r.rates = append(r.rates, float64(sent)/took.Seconds())
	if r.left >= 0 {
		r.left -= sent
	}
}

// A timeSlice is a time during which a target is under load.
type timeSlice struct {
	run        *targetRun
	began, end time.Time
	requests   int64 // 0: any number
	issued     atomic.Int64
	sent       atomic.Int64
}

// call is one caller: it sends until ctx ends.
func (s *timeSlice) call(ctx, asking context.Context, caller int) {
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		i := s.issued.Add(1) - 1
		if s.requests > 0 && i >= s.requests {
			return
		}
		due := s.due(i)
		if !due.Before(s.end) || !pauseUntil(ctx, due) {
			return
		}
		o, err := s.run.target.send(asking, s.run.keys.nextKey(rnd, time.Now()))
		s.run.meter.record(caller, o, time.Since(due), err)
		s.sent.Add(1)
		if o == outcomeErrored && !pauseUntil(ctx, time.Now().Add(respite)) {
			return
		}
	}
}

// due returns when request i is due: now, or at the time that the rate determines.
func (s *timeSlice) due(i int64) time.Time {
	if rate := s.run.cfg.rate; rate > 0 {
		return s.began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
	}
	return time.Now()
}
