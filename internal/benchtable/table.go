package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// results are the figures of a round.
type results map[metric]float64

// read adds the figures in the output of go test, in the format that benchstat reads
// (https://go.dev/design/14313-benchmark-format).
func (r results) read(output string) {
	for text := range strings.Lines(output) {
		fields := strings.Fields(text)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i]
			}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				r[metric{name, fields[i+1]}] = value
			}
		}
	}
}

// ratio returns the ratio of a row, if both of its metrics were measured.
func (r results) ratio(of row) (float64, bool) {
	a, measured := r[of.of]
	b := r[of.to]
	return a / b, measured && b > 0
}

// A line is a row with its measurements.
type line struct {
	row
	median, lowest, highest float64 // 0 if nothing was measured
}

func newLine(r row, ratios []float64) line {
	if len(ratios) == 0 {
		return line{row: r}
	}
	slices.Sort(ratios)
	return line{row: r, median: ratios[len(ratios)/2], lowest: ratios[0], highest: ratios[len(ratios)-1]}
}

func (l *line) measured() bool { return l.highest > 0 }

func (l *line) reached() bool {
	if l.least {
		return l.median >= l.goal
	}
	return l.median <= l.goal
}

func (l *line) verdict() string {
	switch {
	case !l.measured():
		return "not measured"
	case l.reached():
		return "reached"
	}
	return "**not reached**"
}

func (l *line) bound() string {
	if l.least {
		return "at least " + decimal(l.goal)
	}
	return "at most " + decimal(l.goal)
}

// decimal writes a ratio with three digits that count.
func decimal(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// table returns the lines as a table in Markdown.
func table(lines []line) string {
	var b strings.Builder
	b.WriteString("| | work | compared with | ratio | lowest to highest | goal | |\n|---|---|---|---:|---|---|---|\n")
	for _, l := range lines {
		ratio, spread := "", ""
		if l.measured() {
			ratio, spread = decimal(l.median), decimal(l.lowest)+" to "+decimal(l.highest)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", l.subject, l.work, l.than, ratio, spread, l.bound(), l.verdict())
	}
	return b.String()
}
