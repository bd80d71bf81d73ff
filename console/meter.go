package console

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

const (
	meterSeconds = 300 // for which a Meter counts
	partSeconds  = 10  // of the durations that it keeps together
	meterParts   = meterSeconds / partSeconds
	maxBuckets   = 240
)

// meterOutcomes are the outcomes that a Meter counts, in the order of the page. An outcome
// that is not here, such as one of an integration, counts as the last.
var meterOutcomes = [...]struct {
	outcome onlyonce.Outcome
	group   group
	means   string
}{
	{onlyonce.OutcomeExecuted, executed, "ran, or released the command"},
	{onlyonce.OutcomeReplayed, replayed, "got the stored response"},
	{onlyonce.OutcomeMismatch, rejected, "used the key of a different request"},
	{onlyonce.OutcomeKeyExpired, rejected, "came when the response was not kept any more"},
	{onlyonce.OutcomeInFlight, rejected, "came while another attempt ran"},
	{onlyonce.OutcomeFailed, failed, "failed"},
	{onlyonce.OutcomeTakenOver, none, "took over from an attempt whose outcome is unknown"},
	{onlyonce.OutcomeUnknown, attention, "ended with an unknown outcome"},
	{onlyonce.OutcomeHeld, attention, "were rejected until someone decides"},
	{onlyonce.OutcomeLost, attention, "lost their lease"},
	{onlyonce.OutcomeUnrecorded, attention, "ran, but could not be recorded"},
	{onlyonce.OutcomeUnavailable, attention, "found the store unavailable"},
	{onlyonce.OutcomeCorrupt, attention, "found a damaged record"},
	{"other", attention, "had another outcome"},
}

// A group is a color of the chart.
type group int

const (
	executed group = iota
	replayed
	rejected
	failed
	attention
	groups
	none group = -1 // is not in the chart: the outcome of the same request follows
)

var groupNames = [groups]string{"Executed", "Replayed", "Rejected", "Failed", "Needs attention"}

// A Meter counts the events of the last five minutes for a console. It uses less than
// 100 kB of memory, and never blocks longer than it takes to clear a few hundred bytes.
type Meter struct {
	start   time.Time
	roll    sync.Mutex // while a second or a part begins
	seconds [meterSeconds]meterSecond
	parts   [meterParts]meterPart
	purge   atomic.Pointer[purgeEvent]
}

type meterSecond struct {
	at     atomic.Int64 // the second that it counts, from 1
	counts [len(meterOutcomes)]atomic.Uint32
}

// A meterPart has the durations of executed and replayed requests.
type meterPart struct {
	at        atomic.Int64
	durations [2][maxBuckets]atomic.Uint32
}

type purgeEvent struct {
	at     time.Time
	purged int
	failed bool
}

// NewMeter returns a Meter.
func NewMeter() *Meter { return &Meter{start: time.Now()} }

// Observe is an onlyonce.Observer. It counts requests with a key, and, as the Observer of
// a store, its purges.
func (m *Meter) Observe(_ context.Context, e onlyonce.Event) {
	if e.Outcome == onlyonce.OutcomePurged {
		m.purge.Store(&purgeEvent{time.Now(), e.Purged, e.Err != nil})
		return
	}
	if e.Record.ID.Key == "" || e.Outcome == onlyonce.OutcomeWaited { // another outcome of the same request follows
		return
	}
	now := m.now()
	m.second(now).counts[indexOf(e.Outcome)].Add(1)
	switch e.Outcome {
	case onlyonce.OutcomeExecuted:
		m.part(now).durations[0][bucketOf(e.Duration)].Add(1)
	case onlyonce.OutcomeReplayed:
		m.part(now).durations[1][bucketOf(e.Duration)].Add(1)
	}
}

func indexOf(o onlyonce.Outcome) int {
	for i := range meterOutcomes[:len(meterOutcomes)-1] {
		if meterOutcomes[i].outcome == o {
			return i
		}
	}
	return len(meterOutcomes) - 1
}

// now returns the current second, from 1.
func (m *Meter) now() int64 { return int64(time.Since(m.start)/time.Second) + 1 }

// second returns the counts of a second. The first event of a second clears those of the
// one that had its place.
func (m *Meter) second(now int64) *meterSecond {
	s := &m.seconds[now%meterSeconds]
	if s.at.Load() < now {
		m.roll.Lock()
		defer m.roll.Unlock()
		if s.at.Load() < now {
			for i := range s.counts {
				s.counts[i].Store(0)
			}
			s.at.Store(now)
		}
	}
	return s
}

// part returns the durations of the part to which a second belongs.
func (m *Meter) part(now int64) *meterPart {
	now = now/partSeconds + 1
	p := &m.parts[now%meterParts]
	if p.at.Load() < now {
		m.roll.Lock()
		defer m.roll.Unlock()
		if p.at.Load() < now {
			for i := range p.durations {
				for j := range p.durations[i] {
					p.durations[i][j].Store(0)
				}
			}
			p.at.Store(now)
		}
	}
	return p
}

// bucketOf returns the bucket of a duration. From 8 µs on, each power of two has eight.
func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 8 {
		return int(us)
	}
	shift := bits.Len64(us) - 4
	return min(shift*8+int(us>>shift), maxBuckets-1)
}

// longestIn returns the longest duration of a bucket.
func longestIn(bucket int) time.Duration {
	if bucket < 16 {
		return time.Duration(bucket) * time.Microsecond
	}
	shift := bucket/8 - 1
	return time.Duration((bucket%8+9)<<shift-1) * time.Microsecond
}

// barSeconds is how many seconds a bar of the chart stands for.
const barSeconds = 5

const bars = meterSeconds/barSeconds - 1 // the oldest is incomplete

// A sample holds the numbers that a Meter has counted.
type sample struct {
	bars   [bars][groups]int       // oldest first
	counts [len(meterOutcomes)]int // in all bars
	last   int                     // requests in the last complete ten seconds
	times  [2][maxBuckets]int      // of all parts
	total  [2]int                  // of times
}

// sample returns the counts of the last five minutes.
func (m *Meter) sample() (s sample) {
	now := m.now()
	end := now - now%barSeconds // the bar that begins then is the last
	for i := range m.seconds {
		at := m.seconds[i].at.Load()
		bar := int((at-end)/barSeconds) + bars - 1
		if at-end < 0 {
			bar = int((at-end-barSeconds+1)/barSeconds) + bars - 1
		}
		if at == 0 || bar < 0 || bar >= bars {
			continue
		}
		for j := range m.seconds[i].counts {
			n := int(m.seconds[i].counts[j].Load())
			s.counts[j] += n
			if of := meterOutcomes[j].group; of != none {
				s.bars[bar][of] += n
				if at < now && at >= now-10 {
					s.last += n
				}
			}
		}
	}
	part := now/partSeconds + 1
	for i := range m.parts {
		if at := m.parts[i].at.Load(); at == 0 || at <= part-meterParts {
			continue
		}
		for kind := range s.times {
			for j := range s.times[kind] {
				n := int(m.parts[i].durations[kind][j].Load())
				s.times[kind][j] += n
				s.total[kind] += n
			}
		}
	}
	return s
}

// percentile returns the duration that p percent of the requests did not exceed, and
// reports whether there was one.
func (s *sample) percentile(kind, p int) (time.Duration, bool) {
	if s.total[kind] == 0 {
		return 0, false
	}
	rank := (s.total[kind]*p + 99) / 100
	for bucket, n := range s.times[kind] {
		if rank -= n; rank <= 0 {
			return longestIn(bucket), true
		}
	}
	return longestIn(maxBuckets - 1), true
}
