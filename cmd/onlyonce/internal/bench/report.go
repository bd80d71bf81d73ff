package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/plain"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// A report has the measurements of bench, as --format json prints them.
type report struct {
	Callers     int        `json:"callers"`
	Rate        float64    `json:"rate"`             // as requested; 0: as fast as the responses arrive
	Duration    float64    `json:"duration_seconds"` // asked for
	Duplicates  float64    `json:"duplicates"`       // asked for
	Keys        string     `json:"keys"`
	ResultSize  int        `json:"result_size"`
	Interrupted bool       `json:"interrupted"`
	Targets     []measured `json:"targets"`
	Ratio       *ratio     `json:"ratio,omitempty"`
}

// A measured holds the measurements of one target.
type measured struct {
	Target     string               `json:"target"`
	Seconds    float64              `json:"seconds"` // under load
	Requests   int64                `json:"requests"`
	PerSecond  float64              `json:"per_second"`
	Duplicates float64              `json:"duplicates"` // as sent
	Outcomes   map[string]count     `json:"outcomes"`
	Latency    map[string]latencies `json:"latency_microseconds"` // of all, and by outcome
	Violated   int64                `json:"violated"`
	Violations []string             `json:"violations"` // descriptions of the first ones
}

type count struct {
	Count     int64   `json:"count"`
	PerSecond float64 `json:"per_second"`
	Error     string  `json:"first_error,omitempty"`
}

type latencies struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99_9"`
	Max  int64 `json:"max"`
}

// A ratio compares the second target with the first.
type ratio struct {
	PerSecond float64 `json:"per_second"`
	Lowest    float64 `json:"per_second_lowest_slice"`
	Median    float64 `json:"per_second_median_slice"`
	Highest   float64 `json:"per_second_highest_slice"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
}

func newReport(c *config, runs []*targetRun, interrupted bool) *report {
	b := &report{
		Callers: c.callers, Rate: c.rate, Duration: c.duration.Seconds(), Duplicates: c.duplicates,
		Keys: c.keys, ResultSize: c.resultSize, Interrupted: interrupted,
	}
	for _, r := range runs {
		r.target.finish(r.keys)
		b.Targets = append(b.Targets, r.measured())
	}
	if len(runs) == 2 {
		b.Ratio = newRatio(runs, b.Targets)
	}
	return b
}

func (r *targetRun) measured() measured {
	m := r.meter.sum()
	took := r.lasted().Seconds()
	perSecond := func(n int64) float64 {
		if took == 0 {
			return 0
		}
		return float64(n) / took
	}
	b := measured{
		Target: r.target.String(), Seconds: took, Requests: m.requests(), PerSecond: perSecond(m.requests()),
		Outcomes: map[string]count{}, Latency: map[string]latencies{"all": percentiles(m.all())},
	}
	for o, name := range outcomeNames {
		of := count{Count: m.counts[o], PerSecond: perSecond(m.counts[o])}
		if err := r.meter.firstError(outcome(o)); err != nil {
			of.Error = err.Error()
		}
		b.Outcomes[name] = of
		if m.took[o] != nil {
			b.Latency[name] = percentiles(m.took[o])
		}
	}
	if sent, repeated := r.keys.tally(); sent > 0 {
		b.Duplicates = float64(repeated) / float64(sent)
	}
	b.Violated, b.Violations = r.keys.broken()
	b.Violations = append([]string{}, b.Violations...) // never null
	return b
}

func percentiles(h *hdrhistogram.Histogram) latencies {
	return latencies{
		P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99),
		P999: h.ValueAtQuantile(99.9), Max: h.Max(),
	}
}

func newRatio(runs []*targetRun, of []measured) *ratio {
	var each []float64
	for i := range min(len(runs[0].rates), len(runs[1].rates)) {
		if runs[0].rates[i] > 0 {
			each = append(each, runs[1].rates[i]/runs[0].rates[i])
		}
	}
	if len(each) == 0 || of[0].PerSecond == 0 {
		return nil
	}
	slices.Sort(each)
	first, second := of[0].Latency["all"], of[1].Latency["all"]
	return &ratio{
		PerSecond: of[1].PerSecond / of[0].PerSecond,
		Lowest:    each[0], Median: each[len(each)/2], Highest: each[len(each)-1],
		P50: float64(second.P50) / float64(max(first.P50, 1)),
		P99: float64(second.P99) / float64(max(first.P99, 1)),
	}
}

// err returns an error if the guarantee was broken, or if no request succeeded.
func (b *report) err() error {
	var all []error
	for _, m := range b.Targets {
		switch {
		case m.Violated > 0:
			all = append(all, fmt.Errorf("%s broke the guarantee %d times: %s", m.Target, m.Violated, strings.Join(m.Violations, "; ")))
		case m.worked() == 0 && m.Requests > 0:
			all = append(all, fmt.Errorf("no request to %s succeeded: %s", m.Target, m.firstError()))
		}
	}
	return errors.Join(all...)
}

// worked returns how many requests were executed or replayed.
func (m measured) worked() int64 {
	return m.Outcomes[outcomeNames[outcomeExecuted]].Count + m.Outcomes[outcomeNames[outcomeReplayed]].Count
}

// firstError returns the first error of the most frequent unsuccessful outcome.
func (m measured) firstError() string {
	var worst count
	for _, o := range m.Outcomes {
		if o.Error != "" && o.Count > worst.Count {
			worst = o
		}
	}
	return worst.Error
}

func (b *report) print(w io.Writer, format string) error {
	if format == formatJSON {
		out := plain.NewJSONEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(b)
	}
	var text strings.Builder
	for _, m := range b.Targets {
		b.describe(&text, m)
		m.print(&text)
	}
	if r := b.Ratio; r != nil {
		fmt.Fprintf(&text, "second to first: %.2f times the throughput (slices: %.2f to %.2f, median %.2f), p50 %.2f times, p99 %.2f times\n",
			r.PerSecond, r.Lowest, r.Highest, r.Median, r.P50, r.P99)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// describe writes the settings of the run.
func (b *report) describe(w io.Writer, m measured) {
	rate := "as fast as it responds"
	if b.Rate > 0 {
		rate = fmt.Sprintf("%g/s", b.Rate)
	}
	ended := ""
	if b.Interrupted {
		ended = ", interrupted"
	}
	fmt.Fprintf(w, "%s\n%d callers, %s, for %v%s; %.1f%% repeats (%s)\n\n", m.Target, b.Callers, rate, time.Duration(m.Seconds*float64(time.Second)).Round(time.Millisecond), ended, 100*m.Duplicates, b.Keys)
}

func (m measured) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "outcome\tcount\tper second\tp50\tp90\tp99\tp99.9\tmax\t")
	row := func(name string, n int64, perSecond float64, p latencies) {
		fmt.Fprintf(table, "%s\t%d\t%.0f\t", strings.ReplaceAll(name, "_", " "), n, perSecond)
		for _, us := range []int64{p.P50, p.P90, p.P99, p.P999, p.Max} {
			if n == 0 {
				fmt.Fprint(table, "-\t")
				continue
			}
			fmt.Fprint(table, latencyText(us), "\t")
		}
		fmt.Fprintln(table)
	}
	for _, name := range outcomeNames {
		row(name, m.Outcomes[name].Count, m.Outcomes[name].PerSecond, m.Latency[name])
	}
	row("all", m.Requests, m.PerSecond, m.Latency["all"])
	_ = table.Flush() // into a strings.Builder
	fmt.Fprintln(w)
	for _, name := range outcomeNames {
		if text := m.Outcomes[name].Error; text != "" {
			fmt.Fprintf(w, "first %s: %s\n", strings.ReplaceAll(name, "_", " "), visible.Text(text, ""))
		}
	}
	if m.Violated == 0 && m.worked() > 0 {
		fmt.Fprint(w, "checked: no key ran twice, and every repeat got the first response\n\n")
	}
}
