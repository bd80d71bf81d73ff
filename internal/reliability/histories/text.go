//go:build linux

package histories

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// settlement returns the settlement that the call passes to the store.
func (c *Call) settlement() onlyonce.Settlement {
	if c.State == "" {
		return onlyonce.Settlement{}
	}
	s := onlyonce.Settlement{State: c.State, Final: c.Final, Keep: c.Keep}
	if c.State == onlyonce.StateUnknown || c.State == onlyonce.StateFailed {
		s.Error = c.Text
	}
	if c.State != onlyonce.StateUnknown {
		s.Result = onlyonce.Result{Status: 201, Header: map[string][]string{"Location": {c.Text}}, Body: []byte(c.Text), Ref: c.Text}
	}
	return s
}

// resultAndError returns the result and the error of a record that the call settled.
func (c *Call) resultAndError() (result, text string) {
	s := c.settlement()
	return textOf(s.Result), s.Error
}

// textOf returns a result as text.
func textOf(r onlyonce.Result) string {
	if r.Status == 0 && r.Body == nil && r.Ref == "" && r.Header == nil {
		return ""
	}
	return fmt.Sprint(r.Status, " ", r.Header, " ", r.Ref, " ", string(r.Body))
}

// withStep adds a step, whose value is its name.
func withStep(steps, name string) string {
	all := strings.Fields(steps)
	if !slices.Contains(all, name) {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// stepsOf returns the names of the steps, and the values that differ from their names.
func stepsOf(steps map[string][]byte) string {
	names := slices.Sorted(maps.Keys(steps))
	for i, name := range names {
		if string(steps[name]) != name {
			names[i] = fmt.Sprintf("%s:%q", name, steps[name])
		}
	}
	return strings.Join(names, " ")
}

var fingerprints = [][]byte{
	nil, onlyonce.Fingerprint([]byte("first")), onlyonce.Fingerprint([]byte("second")), onlyonce.Fingerprint([]byte("third")),
}

func seenRecord(r *onlyonce.Record) *SeenRecord {
	s := &SeenRecord{
		State: r.State, Owner: r.Owner, Fingerprint: -1, Attempt: r.Attempt, Fence: r.Fence, Result: textOf(r.Result), Error: r.Error,
		Final: r.Final, Corrupt: r.Corrupt, Steps: stepsOf(r.Steps), LeaseLeft: r.LeaseLeft, KeepLeft: r.KeepLeft,
		Busy: r.State == onlyonce.StateProcessing && r.Owner == "",
	}
	if !r.CreatedAt.IsZero() {
		s.Created = r.CreatedAt.UnixNano()
	}
	for i, f := range fingerprints {
		if string(f) == string(r.Fingerprint) {
			s.Fingerprint = i
		}
	}
	return s
}

// describe returns the event as text, with times since the history's first.
func (e *Event) describe(first int64) string {
	var b strings.Builder
	end := "     …   "
	if e.End != forever {
		end = fmt.Sprintf("%9.3f", float64(e.End-first)/1e6)
	}
	fmt.Fprintf(&b, "%9.3f–%s ms  process %d, client %d: %s", float64(e.Start-first)/1e6, end, e.Process, e.Client, e.describeCall())
	fmt.Fprintf(&b, "\n%29s→ %s", "", e.Verdict)
	if r := e.Record; r != nil {
		fmt.Fprintf(&b, ": %s", r.describe())
	}
	if e.Kind == Rows && e.Verdict == Done {
		fmt.Fprintf(&b, ": %v", e.Rows)
	}
	for _, h := range e.Fences {
		fmt.Fprintf(&b, "; its function got fence %d at %.3f ms", h.Fence, float64(h.At-first)/1e6)
	}
	if e.Err != "" {
		fmt.Fprintf(&b, " (%s)", e.Err)
	}
	return b.String()
}

// describeCall returns the call as text.
func (c *Call) describeCall() string {
	var b strings.Builder
	b.WriteString(string(c.Kind))
	if c.Kind == Claim || c.Kind == RunTx {
		fmt.Fprintf(&b, " by %s, fingerprint %d, lease %v", c.Owner, c.Fingerprint, c.Lease)
		if c.RetryFailed {
			b.WriteString(", retries failures")
		}
		if c.TakeUnknown {
			b.WriteString(", takes over unknown outcomes")
		}
	}
	if c.Kind == Renew || c.Kind == Settle || c.Kind == SettleTx {
		fmt.Fprintf(&b, " with the hold of %s, fence %d", c.Owner, c.Fence)
	}
	if c.Kind == Resolve || c.Kind == Remove {
		fmt.Fprintf(&b, " of fence %d", c.Fence)
	}
	if c.Kind == Renew {
		fmt.Fprintf(&b, " for %v", c.Lease)
		if c.Step != "" {
			fmt.Fprintf(&b, " with step %s", c.Step)
		}
	}
	switch c.Kind {
	case Settle, SettleTx, RunTx, Resolve:
		state := string(c.State)
		if c.State == "" {
			state = "released"
		}
		fmt.Fprintf(&b, ", as %s (%s)", state, c.Text)
		if c.Final {
			b.WriteString(" for good")
		}
		if c.State != "" {
			fmt.Fprintf(&b, ", kept for %v", c.Keep)
		}
	}
	if c.Row != "" {
		fmt.Fprintf(&b, ", with row %s; the function %s", c.Row, c.Ending)
	}
	return b.String()
}

func (r *SeenRecord) describe() string {
	if r.Busy {
		return fmt.Sprintf("a transaction runs it, fingerprint %d", r.Fingerprint)
	}
	text := fmt.Sprintf("%s, owner %q, fingerprint %d, attempt %d, fence %d, created %d", r.State, r.Owner, r.Fingerprint, r.Attempt, r.Fence, r.Created/1000)
	if r.State == onlyonce.StateProcessing {
		text += fmt.Sprintf(", lease %v", r.LeaseLeft.Round(time.Microsecond))
	} else {
		text += fmt.Sprintf(", keep %v", r.KeepLeft.Round(time.Microsecond))
	}
	for name, value := range map[string]string{"result": r.Result, "error": r.Error, "steps": r.Steps} {
		if value != "" {
			text += fmt.Sprintf(", %s %q", name, value)
		}
	}
	if r.Corrupt {
		text += ", corrupt"
	}
	return text
}
