package bench

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A pacedTarget responds after a time, and remembers when it was asked.
type pacedTarget struct {
	name  string
	takes time.Duration
	fails error
	log   *[]string // of the targets that got requests; nil: none
	mu    sync.Mutex
	at    []time.Time
}

func (p *pacedTarget) send(ctx context.Context, k *trackedKey) (outcome, error) {
	p.mu.Lock()
	p.at = append(p.at, time.Now())
	if p.log != nil {
		*p.log = append(*p.log, p.name)
	}
	takes := p.takes
	p.mu.Unlock()
	if !pauseUntil(ctx, time.Now().Add(takes)) {
		return outcomeErrored, ctx.Err()
	}
	if p.fails != nil {
		return outcomeErrored, p.fails
	}
	k.recordRun(k.name)
	return outcomeExecuted, nil
}

func (p *pacedTarget) String() string                                          { return p.name }
func (p *pacedTarget) keeps() time.Duration                                    { return time.Hour }
func (p *pacedTarget) finish(*keySet)                                          {}
func (p *pacedTarget) clean(context.Context, io.Writer, time.Time, bool) error { return nil }
func (p *pacedTarget) close() error                                            { return nil }

func TestRun_ABenchLastsForTheConfiguredTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{takes: 100 * time.Millisecond}
		c := &config{callers: 2, duration: time.Second, keys: keysUniform}
		r := newTargetRun(c, p)
		began := time.Now()
		takeTurns(t.Context(), c, []*targetRun{r})
		if took := time.Since(began); took != time.Second || len(p.at) != 20 || r.lasted() != took {
			t.Errorf("%d requests in %v, by its own account %v", len(p.at), took, r.lasted())
		}
	})
}

func TestRun_ABenchEndsAfterTheConfiguredRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{takes: time.Millisecond}
		c := &config{callers: 16, duration: time.Minute, requests: 101, keys: keysUniform}
		r := newTargetRun(c, p)
		takeTurns(t.Context(), c, []*targetRun{r})
		if m := r.measured(); len(p.at) != 101 || m.Requests != 101 || m.Outcomes["executed"].Count != 101 {
			t.Errorf("%d requests, counted as %+v", len(p.at), m)
		}
	})
}

func TestRun_TheLatencyAtARateCountsFromWhenARequestWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{takes: time.Second}
		c := &config{callers: 1, rate: 10, duration: time.Minute, requests: 5, keys: keysUniform}
		r := newTargetRun(c, p)
		takeTurns(t.Context(), c, []*targetRun{r})
		// The last of five was due after 0.4 s, sent after 4, and its response came after 5.
		if most := r.measured().Latency["all"].Max; most < 4_590_000 || most > 4_610_000 {
			t.Errorf("the longest took %d µs", most)
		}
		p.takes, p.at, r = 0, nil, newTargetRun(c, p)
		takeTurns(t.Context(), c, []*targetRun{r})
		for i, at := range p.at {
			if d := at.Sub(p.at[0]); d != time.Duration(i)*100*time.Millisecond {
				t.Errorf("request %d was sent after %v", i, d)
			}
		}
	})
}

func TestRun_TwoTargetsTakeTurnsAndBothBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		a := &pacedTarget{name: "a", takes: 100 * time.Millisecond, log: &log}
		b := &pacedTarget{name: "b", takes: 50 * time.Millisecond, log: &log}
		c := &config{callers: 1, duration: 4 * time.Second, keys: keysUniform}
		runs := []*targetRun{newTargetRun(c, a), newTargetRun(c, b)}
		takeTurns(t.Context(), c, runs)
		if turns := strings.Join(log, ""); !strings.HasPrefix(turns, "aabbbbbbbbaaaabbbbbbbbaa") {
			t.Errorf("the turns were %s", turns)
		}
		report := newReport(c, runs, false)
		if len(a.at) != 40 || len(b.at) != 80 || len(runs[0].rates) != sliceCount || report.Ratio.PerSecond != 2 || report.Ratio.Lowest != 2 || report.Ratio.Median != 2 {
			t.Errorf("%d and %d requests: %+v", len(a.at), len(b.at), report.Ratio)
		}
	})
}

func TestRun_TwoTargetsGetTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &pacedTarget{takes: time.Millisecond}, &pacedTarget{takes: 5 * time.Millisecond}
		c := &config{callers: 1, duration: 930 * time.Millisecond, keys: keysUniform} // the last slice is shorter
		runs := []*targetRun{newTargetRun(c, a), newTargetRun(c, b)}
		takeTurns(t.Context(), c, runs)
		if runs[0].lasted() != c.duration || runs[1].lasted() != c.duration || len(a.at) != 930 || len(b.at) != 186 {
			t.Errorf("%d requests in %v, and %d in %v", len(a.at), runs[0].lasted(), len(b.at), runs[1].lasted())
		}
	})
}

func TestRun_TwoTargetsGetTheSameNumberOfRequests(t *testing.T) {
	for _, n := range []int64{1, 7, 19, 20, 41} {
		synctest.Test(t, func(t *testing.T) {
			a, b := &pacedTarget{takes: time.Millisecond}, &pacedTarget{takes: 9 * time.Millisecond}
			c := &config{callers: 4, duration: time.Hour, requests: n, keys: keysUniform}
			takeTurns(t.Context(), c, []*targetRun{newTargetRun(c, a), newTargetRun(c, b)})
			if int64(len(a.at)) != n || int64(len(b.at)) != n {
				t.Errorf("of %d, %d and %d were sent", n, len(a.at), len(b.at))
			}
		})
	}
}

func TestRun_ATargetThatHangsDoesNotHangTheBench(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{takes: 1000 * time.Hour}
		c := &config{callers: 2, duration: time.Second, keys: keysUniform}
		r := newTargetRun(c, p)
		takeTurns(t.Context(), c, []*targetRun{r})
		report := newReport(c, []*targetRun{r}, false)
		if n := report.Targets[0].Outcomes["error"].Count; n != 2 || r.lasted() != time.Second+patience {
			t.Errorf("%d errors, after %v", n, r.lasted())
		}
		if err := report.err(); err == nil || !strings.Contains(err.Error(), "context canceled") {
			t.Error(err)
		}
	})
}

func TestRun_AFailingTargetIsNotCalledAsFastAsItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{fails: errors.New("no")}
		c := &config{callers: 1, duration: time.Second, keys: keysUniform}
		takeTurns(t.Context(), c, []*targetRun{newTargetRun(c, p)})
		if most := int(time.Second / respite); len(p.at) != most {
			t.Errorf("it was asked %d times, want %d", len(p.at), most)
		}
	})
}

func TestRun_AnInterruptedBenchIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{name: "p", takes: 100 * time.Millisecond}
		c := &config{callers: 1, duration: time.Hour, keys: keysUniform}
		r := newTargetRun(c, p)
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		takeTurns(ctx, c, []*targetRun{r})
		var out strings.Builder
		if err := newReport(c, []*targetRun{r}, true).print(&out, "table"); err != nil {
			t.Fatal(err)
		}
		if len(p.at) != 3 || !strings.Contains(out.String(), "for 300ms, interrupted; ") || !strings.Contains(out.String(), "executed      3") {
			t.Errorf("%d requests:\n%s", len(p.at), &out)
		}
	})
}

func TestRun_TheProgressSaysWhatHappenedSinceTheLastLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacedTarget{takes: 10 * time.Millisecond}
		c := &config{callers: 1, duration: 2 * time.Second, keys: keysUniform}
		runs := []*targetRun{newTargetRun(c, p)}
		shown := newProgress(runs)
		var lines []string
		go func() {
			time.Sleep(1005 * time.Millisecond)
			lines = append(lines, shown.line())
			p.mu.Lock()
			p.takes = 20 * time.Millisecond
			p.mu.Unlock()
			time.Sleep(900 * time.Millisecond)
			lines = append(lines, shown.line())
		}()
		takeTurns(t.Context(), c, runs)
		synctest.Wait()
		if len(lines) != 2 || lines[0] != "1.0s  executed 100/s  p50 10ms  p99 10ms" || !strings.HasPrefix(lines[1], "1.9s  executed 50/s  p50 10ms  p99 20ms") {
			t.Errorf("%q", lines)
		}
	})
}

func TestRun_TheProgressOfTargetsThatTakeTurnsIsThatOfTheWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config{callers: 1, duration: 2 * time.Second, keys: keysUniform}
		runs := []*targetRun{newTargetRun(c, &pacedTarget{takes: 10 * time.Millisecond}), newTargetRun(c, &pacedTarget{takes: 20 * time.Millisecond})}
		shown := newProgress(runs)
		takeTurns(t.Context(), c, runs)
		for range 2 {
			if line := shown.line(); line != "executed 100/s  p50 10ms  p99 10ms  |  executed 50/s  p50 20ms  p99 20ms" {
				t.Error(line)
			}
		}
	})
}

func TestRun_ALatencyIsWrittenWithThreeDigits(t *testing.T) {
	for us, want := range map[int64]string{0: "0s", 7: "7µs", 999: "999µs", 1234: "1.23ms", 12345: "12.3ms", 123456: "123ms", 1234567: "1.23s", 83_000_000: "1m23s"} {
		if got := latencyText(us); got != want {
			t.Errorf("%d µs: %s, want %s", us, got, want)
		}
	}
}

func TestRun_AFailureIsExplainedByWhatHappenedMost(t *testing.T) {
	for _, worst := range []string{"error", "failed", "mismatch"} {
		m := measured{Target: "http://shop.example", Requests: 100, Outcomes: map[string]count{}}
		for _, name := range outcomeNames {
			m.Outcomes[name] = count{}
		}
		for _, name := range []string{"error", "failed", "mismatch"} {
			m.Outcomes[name] = count{Count: 10, Error: "some " + name}
		}
		m.Outcomes[worst] = count{Count: 80, Error: "most " + worst}
		err := (&report{Targets: []measured{m}}).err()
		if err == nil || err.Error() != "no request to http://shop.example succeeded: most "+worst {
			t.Error(err)
		}
	}
}
