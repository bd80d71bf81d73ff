package console

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/visible"
)

// A recordPage shows a record.
type recordPage struct {
	Row         row
	FullID      string
	Exists      bool // otherwise, there is only its audit trail
	Fence       int64
	Settled     string
	Fingerprint string
	LeftName    string
	Tenant      string // in full, like the others
	Operation   string
	Key, Ref    string
	Summary     string // of the request
	Error       string
	Steps       []step
	Events      []event
	Response    preview
	HasResponse bool
	Audited     bool // the store keeps an audit trail
	CanDecide   bool
	CanExtend   bool
	Completed   bool // a repeat is replayed: another run doubles it
	Remembered  bool // a repeat is rejected, because only the ID is left
	Form        decisionForm
	Done        string // the effect of the decision that was just made
	Problem     string // why a decision had no effect
}

type step struct{ Name, Size string }

// An event is a moment in the life of a record.
type event struct {
	At     time.Time
	When   string
	Ago    string
	Title  string
	Text   string
	Actor  string
	Reason string
	Tone   string
}

// done are the messages after a decision, by the parameter of the address.
var done = map[string]string{
	"completed": "Resolved as completed. Repeats get the response.",
	"failed":    "Resolved as failed. The command never runs again.",
	"rerun":     "Resolved. The next repeat runs the command.",
	"delete":    "Deleted. The next repeat runs the command as new.",
	"extend":    "Changed how long the record is kept.",
}

func (c *console) record(w http.ResponseWriter, r *http.Request, s *session) {
	p, err := c.recordPage(r.Context(), r.PathValue("id"), s)
	if err != nil {
		c.failed(w, r, s, err)
		return
	}
	p.Done = done[r.URL.Query().Get("done")]
	status := http.StatusOK
	if !p.Exists {
		status = http.StatusNotFound
	}
	c.render(w, s, status, "record", "Record "+p.Row.ID, p)
}

// recordPage returns the page of a record or, if it no longer exists, of its audit trail.
func (c *console) recordPage(ctx context.Context, id string, s *session) (*recordPage, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	named, r, err := c.lookup(ctx, id)
	if err != nil && !errors.Is(err, onlyonce.ErrNotFound) {
		return nil, err
	}
	exists := err == nil
	if !exists && named == (onlyonce.ID{}) {
		return nil, onlyonce.ErrNotFound
	}
	var trail []onlyonce.AuditEntry
	if c.auditor != nil {
		if trail, err = c.auditor.AuditTrail(ctx, named); err != nil {
			return nil, err
		}
	}
	r.ID = named
	p := &recordPage{
		Row: c.row(r), FullID: id, Exists: exists, Fence: r.Fence, Audited: c.auditor != nil,
		Tenant: show(named.Tenant), Operation: show(named.Operation), Key: show(named.Key), Ref: show(visible.Cut(r.Result.Ref, 2048)),
		Events: c.events(r, exists, trail),
	}
	if exists {
		c.addRecord(p, r, s)
	}
	return p, nil
}

func (c *console) addRecord(p *recordPage, r onlyonce.Record, s *session) {
	p.Settled, p.Fingerprint, p.Error = instant(r.SettledAt), hex.EncodeToString(r.Fingerprint), show(c.redact.text(visible.Cut(r.Error, 4096)))
	p.Summary = show(c.redact.text(r.Summary))
	p.LeftName = "Is kept for"
	if r.State == onlyonce.StateProcessing {
		p.LeftName = "Lease left"
	}
	for _, name := range slices.Sorted(maps.Keys(r.Steps)) {
		p.Steps = append(p.Steps, step{show(visible.Cut(name, 200)), size(len(r.Steps[name]))})
	}
	p.Response = c.redact.preview(r.Result, previewSize)
	p.HasResponse = r.Result.Status != 0 || len(r.Result.Header) > 0 || len(r.Result.Body) > 0
	p.CanDecide = c.resolver != nil && s.Role == Writer && !isHeld(r)
	p.CanExtend = p.CanDecide && r.State != onlyonce.StateProcessing && r.State != onlyonce.StateRemembered && !r.Corrupt && !waits(r)
	p.Completed, p.Remembered = r.State == onlyonce.StateCompleted, r.State == onlyonce.StateRemembered
	p.Form = newDecisionForm(r)
}

// waits reports whether a record of unknown outcome stays until a person decides about it.
func waits(r onlyonce.Record) bool { return r.State == onlyonce.StateUnknown && r.KeepLeft == 0 }

// isHeld reports whether an attempt holds the command of a record.
func isHeld(r onlyonce.Record) bool {
	return r.State == onlyonce.StateProcessing && r.LeaseLeft > 0
}

// events returns the life of a record, oldest first.
func (c *console) events(r onlyonce.Record, exists bool, trail []onlyonce.AuditEntry) []event {
	var list []event
	add := func(e event) { list = append(list, e) }
	for _, entry := range trail {
		before := entry.Before
		if at := claimedAt(time.Time{}, before.Fence); !at.IsZero() && (before.Attempt > 1 || !exists) {
			add(event{At: at, Title: fmt.Sprintf("Attempt %d began", before.Attempt), Tone: "busy"})
		}
		add(event{
			At: entry.At, Title: decided(entry.After), Text: "It was " + stateOf(before) + withStatus(before.Result.Status) + ".",
			Actor: show(entry.Actor), Reason: show(entry.Reason), Tone: "person",
		})
	}
	if exists {
		c.addLife(add, r, trail)
	}
	return finish(list)
}

// addLife adds the events that the record itself contains.
func (c *console) addLife(add func(event), r onlyonce.Record, trail []onlyonce.AuditEntry) {
	add(event{At: r.CreatedAt, Title: "Claimed for the first time", Tone: "busy"})
	byPerson := len(trail) > 0 && trail[len(trail)-1].After.State == r.State && !trail[len(trail)-1].At.Before(r.SettledAt.Add(-time.Second))
	if r.Attempt > 1 && !byPerson {
		add(event{At: claimedAt(r.CreatedAt, r.Fence), Title: fmt.Sprintf("Attempt %d began", r.Attempt), Tone: "busy"})
	}
	if !r.SettledAt.IsZero() && !byPerson {
		e := event{At: r.SettledAt, Title: "Ended as " + stateOf(r) + withStatus(r.Result.Status), Text: show(c.redact.text(visible.Cut(r.Error, 1024))), Tone: toneOf(r)}
		if r.State == onlyonce.StateRemembered {
			e.Title, e.Text = "Ended", "The response is not kept any more."
		}
		if r.Result.Ref != "" {
			e.Text = show("Ref " + visible.Cut(r.Result.Ref, 200))
		}
		add(e)
	}
	now := time.Now()
	switch {
	case isHeld(r):
		add(event{At: now.Add(r.LeaseLeft), Title: "The lease ends, unless the attempt renews it"})
	case r.State == onlyonce.StateProcessing:
		add(event{At: now.Add(r.LeaseLeft), Title: "The lease lapsed without a result", Text: "The process died, or lost the store.", Tone: "alarm"})
	case r.KeepLeft > 0:
		add(event{At: now.Add(r.KeepLeft), Title: "The record expires"})
	}
	if r.Result.Keep > 0 {
		add(event{At: now.Add(r.Result.Keep), Title: "The response is deleted", Text: "From then on, repeats are rejected."})
	}
}

// finish sorts events, removes an attempt that is there twice, and adds texts.
func finish(list []event) []event {
	slices.SortStableFunc(list, func(a, b event) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Title, b.Title)) })
	list = slices.CompactFunc(list, func(a, b event) bool { return a.Title == b.Title && a.At.Equal(b.At) })
	now := time.Now()
	for i := range list {
		e := &list[i]
		e.When, e.Ago = instant(e.At), ago(e.At)
		if e.At.After(now) {
			e.Ago = "in " + age(time.Until(e.At))
		}
	}
	return list
}

// decided describes a person's decision.
func decided(s onlyonce.Settlement) string {
	switch {
	case s.State == "":
		return "Deleted by a person"
	case s.State == onlyonce.StateFailed && !s.Final:
		return "Allowed to run again by a person"
	}
	return "Decided by a person: " + stateOf(onlyonce.Record{State: s.State, Final: s.Final}) + withStatus(s.Result.Status)
}

func withStatus(status int) string {
	if status == 0 {
		return ""
	}
	return " with " + statusOf(status)
}
