//go:build linux

package histories

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A History has the calls of all clients for one command, with their results.
type History struct {
	Key     string
	Seed    uint64
	MayUndo bool // as in the Plan
	Events  []*Event
}

// A Finding is a violation in a history.
type Finding struct {
	Key       string
	Undecided bool // the checker did not decide within its limit
	Text      string
}

// maxWork limits the search for an order, and so its time and memory: a history with many calls
// in doubt has too many orders to try them all.
const maxWork = 20_000_000

// stepWork is the cost of a step of the model, in comparisons of two records.
const stepWork = 20

// A search looks for an order of the calls that explains their results.
type search struct{ limit, work int }

func (s *search) exhausted() bool { return s.work > s.limit }

// model returns the model of one record, for porcupine. Once the search is over, no call fits
// and all records are equal.
func (s *search) model() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{record{}} },
		Step: func(state, input, _ any) []any {
			if s.work += stepWork; s.exhausted() {
				return nil
			}
			after := state.(record).step(input.(*Event))
			states := make([]any, len(after))
			for i, s := range after {
				states[i] = s
			}
			return states
		},
		Equal: func(a, b any) bool {
			s.work++
			return s.exhausted() || a.(record) == b.(record)
		},
		DescribeOperation: func(input, _ any) string {
			e := input.(*Event)
			return strings.Join(strings.Fields(e.describe(e.Start)), " ")
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state.(record)) },
	}).ToModel()
}

// Check checks the history, and returns a violation or nil.
func (h *History) Check() *Finding { return h.check(maxWork) }

func (h *History) check(work int) *Finding {
	h.prepare()
	if text := h.fences(); text != "" {
		return &Finding{Key: h.Key, Text: text + "\n" + h.describe()}
	}
	s := search{limit: work}
	switch {
	case porcupine.CheckOperations(s.model(), h.operations()):
		return nil
	case s.exhausted():
		return &Finding{Key: h.Key, Undecided: true, Text: fmt.Sprintf("not decided with the work of %d comparisons\n%s", work, h.describe())}
	}
	return &Finding{Key: h.Key, Text: "no order of the calls explains their results" + h.firstMisfit() + "\n" + h.describe()}
}

// Visualize writes porcupine's picture of the history to a file.
func (h *History) Visualize(path string) error {
	model := (&search{limit: maxWork}).model()
	_, info := porcupine.CheckOperationsVerbose(model, h.operations(), 0)
	return porcupine.VisualizePath(model, info, path)
}

// prepare drops calls without information, and marks those that overlap others.
func (h *History) prepare() {
	h.Events = slices.DeleteFunc(h.Events, func(e *Event) bool { return e.Verdict == Doubt && !e.Kind.changes() })
	slices.SortStableFunc(h.Events, func(a, b *Event) int { return cmp.Compare(a.Start, b.Start) })
	h.splitClaims()
	if h.MayUndo {
		h.Events = slices.DeleteFunc(h.Events, (*Event).mayBeUndone)
	}
	for i, e := range h.Events {
		if e.Verdict == Doubt && !e.reverted {
			e.End = forever
		}
		for _, other := range h.Events[:i] {
			if other.End < e.Start {
				e.overlapsRunTx = e.overlapsRunTx || other.leavesLock(e.Start)
				continue
			}
			e.overlapsChange = e.overlapsChange || other.Kind.changes()
			other.overlapsChange = other.overlapsChange || e.Kind.changes()
			e.overlapsRunTx = e.overlapsRunTx || other.Kind == RunTx
			other.overlapsRunTx = other.overlapsRunTx || e.Kind == RunTx
		}
	}
}

// splitClaims adds calls for claims that may have held the command and lost it again before
// they returned. A slow store may find that a claim's fence is too low, or repeat a claim
// whose response was lost, when the command already belongs to another owner. This takes
// longer than the lease. Such a claim is two calls: the first may have had an effect, and the
// second has the response or is in doubt. A claim that the store repeats several times is
// several calls, but at most one for each call that may have taken the command from it.
func (h *History) splitClaims() {
	events := slices.Clone(h.Events)
	for _, e := range events {
		if e.Kind != Claim || e.Verdict != Done && e.Verdict != Doubt {
			continue
		}
		others := 0
		for _, other := range events {
			takes := other.Kind == Claim || other.Kind == RunTx || other.Kind == Resolve || other.Kind == Remove
			if takes && other.Owner != e.Owner && other.Start < e.End && e.Start < other.End {
				others++
			}
		}
		for n := range max(1, min(e.Resends, others)) {
			if e.End == forever && n > 0 || e.End != forever && e.End-e.Start < int64(n+1)*int64(e.Lease-e.Slack) {
				break
			}
			claim := *e
			claim.Outcome = Outcome{Verdict: Doubt, End: e.End, Err: "before it returned"}
			claim.reverted = true
			h.Events = append(h.Events, &claim)
		}
	}
}

func (h *History) operations() []porcupine.Operation {
	ops := make([]porcupine.Operation, len(h.Events))
	for i, e := range h.Events {
		ops[i] = porcupine.Operation{ClientId: e.Client, Input: e, Call: e.Start, Return: e.End}
	}
	return ops
}

// firstMisfit describes the first call that fits into no order.
func (h *History) firstMisfit() string {
	_, info := porcupine.CheckOperationsVerbose((&search{limit: maxWork}).model(), h.operations(), 0)
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, ops := range partition {
			if len(ops) > len(longest) {
				longest = ops
			}
		}
	}
	states := map[record]bool{{}: true}
	done := make(map[*Event]bool)
	for _, op := range longest {
		e := op.Input.(*Event)
		done[e] = true
		next := make(map[record]bool)
		for s := range states {
			for _, after := range s.step(e) {
				next[after] = true
			}
		}
		states = next
	}
	text := fmt.Sprintf("; after %d of %d calls", len(longest), len(h.Events))
	for s := range states {
		text += fmt.Sprintf(" the record is %+v", s)
		break
	}
	for _, e := range h.Events {
		if !done[e] {
			return text + "\nwhich this call does not fit:\n" + e.describe(h.Events[0].Start)
		}
	}
	return text
}

// describe returns the history as text.
func (h *History) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the history of %s (seed %d):\n", h.Key, h.Seed)
	for _, e := range h.Events {
		b.WriteString(e.describe(h.Events[0].Start))
		b.WriteByte('\n')
	}
	return b.String()
}

// A grant is a fence that was issued to an attempt.
type grant struct {
	owner                string
	fence                int64
	requestedAt, knownAt int64
	rolledBack           bool // the transaction for which it was issued was rolled back
}

// fences checks that no fence was issued to two attempts, and that a fence is higher than all
// that were known before it was requested. The latter also holds for fences that were issued
// but not used, which the model does not know.
func (h *History) fences() string {
	var grants []grant
	issued := make(map[string]bool)
	requestedAt := make(map[string]int64) // for the first time
	for _, e := range h.Events {
		if first, repeated := requestedAt[e.Owner]; !repeated || e.Start < first {
			requestedAt[e.Owner] = e.Start
		}
	}
	for _, e := range h.Events {
		if e.Kind == Claim && e.Verdict == Done && e.Record.Owner == e.Owner && !issued[e.Owner] {
			issued[e.Owner] = true // a repeated claim gets the same
			grants = append(grants, grant{e.Owner, e.Record.Fence, requestedAt[e.Owner], e.End, false})
		}
		for n, seen := range e.Fences {
			if e.Kind != RunTx {
				continue
			}
			g := grant{e.Owner, seen.Fence, requestedAt[e.Owner], seen.At, false}
			if n < len(e.Fences)-1 || e.Record == nil || e.Record.Owner != e.Owner {
				g.rolledBack, g.knownAt = true, e.End // the store keeps it once the transaction has ended
			}
			grants = append(grants, g)
		}
	}
	for i, a := range grants {
		for _, b := range grants[i+1:] {
			if a.owner == b.owner {
				continue
			}
			switch {
			case a.fence == b.fence && !a.rolledBack && !b.rolledBack:
				return fmt.Sprintf("fence %d was issued to %s and to %s", a.fence, a.owner, b.owner)
			case a.knownAt < b.requestedAt && a.fence >= b.fence, b.knownAt < a.requestedAt && b.fence >= a.fence:
				return fmt.Sprintf("fence %d of %s and fence %d of %s were issued in the wrong order", a.fence, a.owner, b.fence, b.owner)
			}
		}
	}
	return ""
}
