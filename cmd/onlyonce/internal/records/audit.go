package records

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// auditTrail returns the decisions of people about a command, oldest first, and none if the
// store keeps no audit trail.
func auditTrail(ctx context.Context, store onlyonce.Lister, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	a, ok := store.(interface {
		AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error)
	})
	if !ok {
		return nil, nil
	}
	return a.AuditTrail(ctx, id)
}

// showAudit writes a line for each decision, under a heading.
func showAudit(w io.Writer, entries []onlyonce.AuditEntry) error {
	if len(entries) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "decisions:"); err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := fmt.Fprintf(w, "  %s by %s: %s -> %s: %s\n", instant(e.At), cli.Cell(e.Actor), before(e.Before), after(e.After), visible.Text(e.Reason, "")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

func before(r onlyonce.Record) string {
	text := stateOf(r) // of a processing record, the lease has lapsed
	if r.Result.Status != 0 {
		text += " " + statusOf(r)
	}
	return fmt.Sprintf("%s, attempt %d", text, r.Attempt)
}

func after(s onlyonce.Settlement) string {
	if s.State == "" {
		return "deleted"
	}
	r := onlyonce.Record{State: s.State, Final: s.Final, Result: s.Result}
	text := stateOf(r)
	if s.Result.Status != 0 {
		text += " " + statusOf(r)
	}
	return text
}

// An auditJSON is a decision in the form that --json prints.
type auditJSON struct {
	At     time.Time    `json:"at"`
	Actor  string       `json:"actor"`
	Reason string       `json:"reason"`
	Before outcomeJSON  `json:"before"`
	After  *outcomeJSON `json:"after"` // null: the record was deleted
}

// An outcomeJSON holds the parts of a record or a decision that an audit trail keeps.
type outcomeJSON struct {
	State      onlyonce.State `json:"state"`
	Attempt    int            `json:"attempt,omitempty"`
	Fence      int64          `json:"fence,omitempty"`
	StatusCode int            `json:"status_code"`
	Ref        string         `json:"ref"`
	Error      string         `json:"error"`
	Final      bool           `json:"final"`
}

func newAuditJSON(entries []onlyonce.AuditEntry) []auditJSON {
	list := make([]auditJSON, len(entries))
	for i, e := range entries {
		b := e.Before
		list[i] = auditJSON{At: e.At.UTC(), Actor: e.Actor, Reason: e.Reason, Before: outcomeJSON{
			State: b.State, Attempt: b.Attempt, Fence: b.Fence, StatusCode: b.Result.Status, Ref: b.Result.Ref, Error: b.Error, Final: b.Final,
		}}
		if a := e.After; a.State != "" {
			list[i].After = &outcomeJSON{State: a.State, StatusCode: a.Result.Status, Ref: a.Result.Ref, Error: a.Error, Final: a.Final}
		}
	}
	return list
}
