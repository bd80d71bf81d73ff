package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// An outcome is the outcome of one request of bench.
type outcome int

const (
	outcomeExecuted outcome = iota
	outcomeReplayed
	outcomeInFlight // rejected: another request with the key is running
	outcomeMismatch // rejected: the key was used for a different request
	outcomeFailed   // the response is a failure
	outcomeErrored  // there was no response
	outcomeCount
)

var outcomeNames = [outcomeCount]string{"executed", "replayed", "in_flight", "mismatch", "failed", "error"}

// Latencies are kept in microseconds with three digits.
const slowest = 10 * time.Minute

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, slowest.Microseconds(), 3)
}

// A meter counts requests and their latencies. Callers share its parts, so
// that they rarely wait for each other.
type meter struct {
	parts [8]meterPart
	mu    sync.Mutex
	first [outcomeCount]error // the first error of each outcome
}

type meterPart struct {
	mu sync.Mutex
	measures
	_ [64]byte // padding: each part has its own cache lines
}

// measures holds the counts and latencies that were measured.
type measures struct {
	counts [outcomeCount]int64
	took   [outcomeCount]*hdrhistogram.Histogram // nil: none
}

func (m *measures) record(o outcome, took time.Duration) {
	if m.took[o] == nil {
		m.took[o] = newHistogram()
	}
	m.counts[o]++
	us := min(max(took, time.Microsecond), slowest).Microseconds()
	_ = m.took[o].RecordValue(us) // cannot fail: us is in range
}

func (m *measures) add(other *measures) {
	for o, h := range other.took {
		m.counts[o] += other.counts[o]
		if h == nil {
			continue
		}
		if m.took[o] == nil {
			m.took[o] = newHistogram()
		}
		m.took[o].Merge(h)
	}
}

func (m *measures) requests() (n int64) {
	for _, count := range m.counts {
		n += count
	}
	return n
}

// all returns the latencies of all outcomes.
func (m *measures) all() *hdrhistogram.Histogram {
	sum := newHistogram()
	for _, h := range m.took {
		if h != nil {
			sum.Merge(h)
		}
	}
	return sum
}

func (m *meter) record(caller int, o outcome, took time.Duration, err error) {
	p := &m.parts[caller%len(m.parts)]
	p.mu.Lock()
	p.record(o, took)
	p.mu.Unlock()
	if err != nil {
		m.mu.Lock()
		if m.first[o] == nil {
			m.first[o] = err
		}
		m.mu.Unlock()
	}
}

// sum returns the counts of all callers so far.
func (m *meter) sum() *measures {
	var sum measures
	for i := range m.parts {
		p := &m.parts[i]
		p.mu.Lock()
		sum.add(&p.measures)
		p.mu.Unlock()
	}
	return &sum
}

// firstError returns the first error of an outcome.
func (m *meter) firstError(o outcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first[o]
}
