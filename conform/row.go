package conform

import (
	"fmt"
	"slices"
	"strings"
)

// A result is the verdict of a check and the evidence for it.
type result struct {
	verdict   Verdict
	detail    string
	caveat    string
	exchanges []Exchange
}

func pass(detail string, shown ...Exchange) result {
	return result{verdict: Pass, detail: detail, exchanges: shown}
}

func fail(detail string, shown ...Exchange) result {
	return result{verdict: Fail, detail: detail, exchanges: shown}
}

func unsupported(detail string, shown ...Exchange) result {
	return result{verdict: NotSupported, detail: detail, exchanges: shown}
}

// A check is a row and the function that checks it.
type check struct {
	id, title, section, advice string

	advisory bool // see Row.Advisory

	precondition precondition
	maxRequests  int // the maximum number of requests it sends, without the retries after a 429
	run          func(*probe) (result, error)
}

// A precondition of a check must hold for its verdict to mean anything.
type precondition int

const (
	noPrecondition       precondition = iota
	needsRunDetection                 // a second run can be detected
	needsReplays                      // a repeat is replayed
	needsReplayDetection              // a replay can be recognized by its response
	needsVaryingBody                  // bodies can differ
)

// unmet returns why a check can't run, or "" if it can.
func (p *probe) unmet(n precondition) string {
	switch {
	case n == needsRunDetection && !p.detectsRuns, n == needsReplays && !p.detectsRuns, n == needsReplayDetection && p.marker == "" && len(p.identity) == 0:
		return "Two runs of one body get the same response here, so a second run cannot be detected: give the URL of a count of effects (CountURL, --count-url)."
	case (n == needsReplays || n == needsReplayDetection) && !p.replays:
		return "A repeat is not replayed at all: see the row replay."
	case n == needsVaryingBody && !p.bodies.varies():
		return "The body is always the same: name a field to vary (Fresh, --fresh), or write {{fresh}} into it."
	}
	return ""
}

// runCheck runs the check, unless its precondition does not hold.
func (p *probe) runCheck(c check) (Row, error) {
	row := c.row()
	found := unsupported(p.unmet(c.precondition))
	if found.detail == "" {
		var err error
		if found, err = c.run(p); err != nil {
			return row, fmt.Errorf("%s: %w", c.id, err)
		}
	}
	row.Verdict, row.Detail, row.Caveat, row.Exchanges = found.verdict, found.detail, found.caveat, found.exchanges
	return row, nil
}

// row returns the check's row, without a verdict.
func (c check) row() Row {
	return Row{ID: c.id, Title: c.title, Section: c.section, Advice: c.advice, Advisory: c.advisory}
}

// Rows returns the rows of every report, in order and without a verdict.
func Rows() []Row {
	rows := make([]Row, len(checks))
	for i, c := range checks {
		rows[i] = c.row()
	}
	return rows
}

// selected returns the checks that Config selects.
func (c Config) selected() ([]check, error) {
	known := make([]string, len(checks))
	for i, check := range checks {
		known[i] = check.id
	}
	for _, id := range slices.Concat(c.Only, c.Skip) {
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("there is no row %q: write one of %s", id, strings.Join(known, ", "))
		}
	}
	var chosen []check
	for _, check := range checks {
		if (len(c.Only) == 0 || slices.Contains(c.Only, check.id)) && !slices.Contains(c.Skip, check.id) {
			chosen = append(chosen, check)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no row is selected: leave out Only and Skip, or name other rows")
	}
	return chosen, nil
}
