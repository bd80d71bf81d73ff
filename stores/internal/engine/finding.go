package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// The names of findings that more than one engine has.
const (
	RiskMixed      = "mixed-servers"
	RiskReplica    = "replica"
	RiskOldVersion = "server-version"
)

// Reject returns the findings that are not accepted as one error, or nil if there are none.
// Only risks can be accepted.
func Reject(findings []onlyonce.Finding, accepted, risks []string) error {
	for _, name := range accepted {
		if !slices.Contains(risks, name) {
			return fmt.Errorf("there is no risk %q to accept: write one of %s", name, strings.Join(risks, ", "))
		}
	}
	var rejected []error
	for _, f := range findings {
		if !slices.Contains(accepted, f.Name) {
			rejected = append(rejected, errors.New(f.String()))
		}
	}
	if len(rejected) == 0 {
		return nil
	}
	return fmt.Errorf("settings of the database would break the promise: %w", errors.Join(rejected...))
}

// NewFinding returns a finding by its name, with the problem and its fix.
func NewFinding(name, problem, fix string) onlyonce.Finding {
	return onlyonce.Finding{Name: name, Problem: problem, Fix: fix}
}

// OlderThan reports whether version a, such as 3.51.3, is older than b.
func OlderThan(a, b string) bool {
	numbers := func(v string) (n []int) {
		for _, part := range strings.Split(v, ".") {
			i, _ := strconv.Atoi(part)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(numbers(a), numbers(b)) < 0
}
