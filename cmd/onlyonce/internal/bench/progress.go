package bench

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
)

const progressEvery = 500 * time.Millisecond

// showProgress keeps a line on a terminal up to date until stop is called. It shows
// nothing if standard error is not a terminal.
func showProgress(runs []*targetRun) (stop func()) {
	if !cli.PrintsToTerminal(os.Stderr) {
		return func() {}
	}
	done := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		p := newProgress(runs)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "\r\x1b[K%s", p.line())
			case <-done:
				fmt.Fprint(os.Stderr, "\r\x1b[K")
				return
			}
		}
	})
	return func() {
		close(done)
		showing.Wait()
	}
}

// A progress holds the state that was shown last.
type progress struct {
	runs   []*targetRun
	lasted time.Duration
	counts [outcomeCount]int64
}

func newProgress(runs []*targetRun) *progress { return &progress{runs: runs} }

// line describes the progress since the last line or, for targets that take turns,
// since the beginning.
func (p *progress) line() string {
	if len(p.runs) == 1 {
		return p.sinceTheLast(p.runs[0])
	}
	var parts []string
	for _, r := range p.runs {
		m := r.meter.sum()
		line := rates(m.counts, r.lasted(), outcomeExecuted)
		parts = append(parts, strings.Join(append(line, quantiles(m)...), "  "))
	}
	return strings.Join(parts, "  |  ")
}

func (p *progress) sinceTheLast(r *targetRun) string {
	m, lasted := r.meter.sum(), r.lasted()
	now := m.counts
	for o := range now {
		now[o] -= p.counts[o]
	}
	line := append([]string{fmt.Sprintf("%.1fs", lasted.Seconds())}, rates(now, lasted-p.lasted, outcomeCount-1)...)
	p.counts, p.lasted = m.counts, lasted
	return strings.Join(append(line, quantiles(m)...), "  ")
}

// rates returns the requests per second of each outcome, up to and including last.
func rates(counts [outcomeCount]int64, in time.Duration, last outcome) (parts []string) {
	for o, n := range counts[:last+1] {
		if n > 0 && in > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f/s", strings.ReplaceAll(outcomeNames[o], "_", " "), float64(n)/in.Seconds()))
		}
	}
	return parts
}

func quantiles(m *measures) []string {
	all := m.all()
	return []string{"p50 " + latencyText(all.ValueAtQuantile(50)), "p99 " + latencyText(all.ValueAtQuantile(99))}
}

// latencyText writes microseconds with three digits.
func latencyText(us int64) string {
	d := time.Duration(us) * time.Microsecond
	for unit := time.Microsecond; unit < time.Minute; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
