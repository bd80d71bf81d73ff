package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// results are the figures of a round.
type results struct {
	figures map[metric]float64
	skipped map[string]string // by the name of a benchmark, why it was skipped
}

func newResults() results {
	return results{make(map[metric]float64), make(map[string]string)}
}

// read adds the figures in the verbose output of go test, in the format that benchstat reads
// (https://go.dev/design/14313-benchmark-format), and what it says about skipped benchmarks.
func (r results) read(output string) {
	var reason string
	for text := range strings.Lines(output) {
		if name, skipped := strings.CutPrefix(text, "--- SKIP: Benchmark"); skipped {
			r.skipped[strings.TrimSpace(name)] = reason
		}
		reason = ""
		if place, message, logged := strings.Cut(text, ".go:"); logged && strings.HasPrefix(place, " ") {
			_, reason, _ = strings.Cut(strings.TrimSpace(message), ": ")
		}
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
				r.figures[metric{name, fields[i+1]}] = value
			}
		}
	}
}

// result returns the result of a row, if all of its metrics were measured.
func (r results) result(of row) (float64, bool) {
	a, measured := r.figures[of.of]
	b, both := r.figures[of.to]
	switch of.kind {
	case amount:
		return a, measured
	case difference:
		return a - b, measured && both
	}
	return a / b, measured && b > 0
}

// reason returns why a row has no result, or "".
func (r results) reason(of row) string {
	for _, m := range []metric{of.of, of.to} {
		for name := m.benchmark; name != ""; {
			if why, skipped := r.skipped[name]; skipped {
				return why
			}
			i := strings.LastIndexByte(name, '/')
			name = name[:max(i, 0)]
		}
	}
	return ""
}

// A line is a row with its measurements.
type line struct {
	row
	measured                bool
	median, lowest, highest float64
}

func newLine(r row, all []float64) line {
	if len(all) == 0 {
		return line{row: r}
	}
	slices.Sort(all)
	low, high := all[(len(all)-1)/2], all[len(all)/2]
	return line{row: r, measured: true, median: (low + high) / 2, lowest: all[0], highest: all[len(all)-1]}
}

func (l *line) reached() bool {
	if l.least {
		return l.median >= l.goal
	}
	return l.median <= l.goal
}

func (l *line) verdict() string {
	switch {
	case !l.measured && l.missing != "":
		return "not measured: " + l.missing
	case !l.measured:
		return "not measured"
	case l.reached():
		return "reached"
	}
	return "**not reached**"
}

func (l *line) bound() string {
	if l.least {
		return "at least " + l.decimal(l.goal)
	}
	return "at most " + l.decimal(l.goal)
}

// decimal writes a result. A ratio has three digits that count.
func (l *line) decimal(x float64) string {
	switch {
	case l.kind != ratio && x == float64(int64(x)):
		return strings.TrimSpace(strconv.FormatFloat(x, 'f', 0, 64) + " " + l.unit)
	case l.kind != ratio:
		return strings.TrimSpace(decimal(x) + " " + l.unit)
	}
	return decimal(x)
}

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
	b.WriteString("| | work | compared with | result | lowest to highest | goal | |\n|---|---|---|---:|---|---|---|\n")
	for _, l := range lines {
		result, spread := "", ""
		if l.measured {
			result = l.decimal(l.median)
			if l.lowest < l.highest {
				spread = l.decimal(l.lowest) + " to " + l.decimal(l.highest)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", l.subject, l.work, l.than, result, spread, l.bound(), l.verdict())
	}
	return b.String()
}
