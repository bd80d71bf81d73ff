package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
)

// decideWithin is how long a decision may take. It does not end when the person's browser
// goes away.
const decideWithin = 15 * time.Second

// A decisionForm has a person's input, and the record as the person saw it.
type decisionForm struct {
	Action, Reason, Status, Header, Body, Ref, Keep string
	Sure                                            bool   // about an action after which the command may run twice
	Fence                                           int64  // of the record
	State                                           string // as stateOf
}

func newDecisionForm(r onlyonce.Record) decisionForm {
	return decisionForm{Status: "200", Header: "Content-Type: application/json", Keep: "24h", Fence: r.Fence, State: stateOf(r)}
}

// keeps are the values of decisionForm.Keep.
var keeps = map[string]time.Duration{
	"24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour, "365d": 365 * 24 * time.Hour, "forever": onlyonce.KeepForever,
}

// A mistake describes an error in a form, for the person.
type mistake string

func (m mistake) Error() string { return string(m) }

func readDecision(r *http.Request) (f decisionForm, err error) {
	text := func(name string) string { return strings.ReplaceAll(r.PostFormValue(name), "\r\n", "\n") } // browsers send CRLF
	f = decisionForm{
		Action: text("action"), Reason: strings.TrimSpace(text("reason")), Status: strings.TrimSpace(text("status")), Header: text("header"), Body: text("body"),
		Ref: text("ref"), Keep: text("keep"), Sure: text("sure") == "yes", State: text("state"),
	}
	if f.Fence, err = strconv.ParseInt(text("fence"), 10, 64); err != nil {
		return f, mistake("The form is damaged. Reload the page.")
	}
	return f, nil
}

// settlement returns the settlement that the form stands for.
func (f *decisionForm) settlement(r onlyonce.Record) (s onlyonce.Settlement, err error) {
	keep, ok := keeps[f.Keep]
	if !ok {
		return s, mistake("Choose how long the record is kept.")
	}
	again := f.Action == "delete" || f.Action == "rerun"
	if again && !f.Sure {
		return s, mistake("Confirm that the command may run again.")
	}
	if r.State == onlyonce.StateRemembered && f.Action != "delete" {
		return s, mistake("Only the ID is left of this record: it can be deleted, and nothing else.")
	}
	switch f.Action {
	case "delete":
		return onlyonce.Settlement{}, nil
	case "rerun":
		return onlyonce.Settlement{State: onlyonce.StateFailed, Error: f.Reason, Keep: keep}, nil
	case "failed":
		return onlyonce.Settlement{State: onlyonce.StateFailed, Final: true, Error: f.Reason, Keep: keep}, nil
	case "extend":
		if r.State == onlyonce.StateProcessing || r.Corrupt {
			return s, mistake("Only a record that is settled and undamaged can be kept for longer.")
		}
		if waits(r) && keep != onlyonce.KeepForever {
			return s, mistake("This record stays until someone decides what becomes of the command. If it expired, the command would run again without a decision.")
		}
		return extended(r, keep), nil
	case "completed":
		s = onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: keep}
		s.Result, err = f.result()
		return s, err
	}
	return s, mistake("Choose what becomes of the command.")
}

// extended returns the settlement that keeps the result of r for that long, and its ID at least
// as long as before.
func extended(r onlyonce.Record, keep time.Duration) onlyonce.Settlement {
	s := onlyonce.Settlement{State: r.State, Result: r.Result, Error: r.Error, Final: r.Final, Keep: keep}
	isRemembered := r.Result.Keep > 0 && keep > 0
	s.Result.Keep = 0
	switch {
	case isRemembered && r.KeepLeft == 0:
		s.Result.Keep, s.Keep = keep, onlyonce.KeepForever
	case isRemembered && r.KeepLeft > keep:
		s.Result.Keep, s.Keep = keep, r.KeepLeft
	}
	return s
}

// result returns the response that repeats get.
func (f *decisionForm) result() (result onlyonce.Result, err error) {
	if f.Status != "" {
		if result.Status, err = strconv.Atoi(f.Status); err != nil || result.Status != 0 && (result.Status < 200 || result.Status > 599) {
			return result, mistake("The status must be a number from 200 to 599, or 0 if the command is not an HTTP request.")
		}
	}
	if f.Body != "" {
		result.Body = []byte(f.Body)
	}
	result.Ref = f.Ref
	result.Header, err = parseHeader(f.Header)
	return result, err
}

// parseHeader parses lines such as "Name: value".
func parseHeader(text string) (map[string][]string, error) {
	header := make(http.Header)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || !httpfield.IsToken(name) || !httpfield.IsText(value):
			return nil, mistake("A header must be a line such as Name: value.")
		case isOfConnection(name):
			return nil, mistake("The header " + http.CanonicalHeaderKey(name) + " is set when the response is sent: leave it out.")
		}
		header.Add(name, value)
	}
	if len(header) == 0 {
		return nil, nil
	}
	return header, nil
}

// isOfConnection reports whether a header is about the connection or the length of the
// message, not the response.
func isOfConnection(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return httpfield.OfConnection(name) || name == "Content-Length" || name == "Trailer"
}

// decide resolves a record.
func (c *console) decide(w http.ResponseWriter, r *http.Request, s *session) {
	if c.resolver == nil {
		c.problem(w, s, http.StatusNotFound, "In this store, nobody can decide.")
		return
	}
	id := r.PathValue("id")
	f, err := readDecision(r)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), decideWithin)
		defer cancel()
		err = c.apply(ctx, id, f, s)
	}
	if err == nil {
		c.gauges.refresh(r.Context())
		http.Redirect(w, r, c.path+"records/"+id+"?done="+f.Action, http.StatusSeeOther)
		return
	}
	text, status := c.explain(r, err)
	p, err := c.recordPage(r.Context(), id, s)
	if err != nil {
		c.problem(w, s, status, text)
		return
	}
	if p.Problem = text; status == http.StatusUnprocessableEntity { // the record is as it was: only the form is wrong
		p.Form = f
	} else if p.Exists {
		p.Form.Reason, p.Form.Body, p.Form.Header, p.Form.Status, p.Form.Ref = f.Reason, f.Body, f.Header, f.Status, f.Ref
	}
	c.render(w, s, status, "record", "Record "+p.Row.ID, p)
}

// apply makes a decision if the record is as the person saw it. The store makes the same
// comparison; apply makes it first so that it can say what has changed.
func (c *console) apply(ctx context.Context, id string, f decisionForm, s *session) error {
	d := onlyonce.Decision{Actor: s.Name, Reason: f.Reason}
	if d.Reason == "" {
		return mistake("Write a reason: an audit trail says who decided, and why.")
	}
	if err := d.Check(); err != nil {
		return mistake("The reason can't be stored: write at most 2048 bytes of text.")
	}
	_, now, err := c.lookup(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case isHeld(now):
		return onlyonce.ErrInFlight
	case now.Fence != f.Fence || stateOf(now) != f.State:
		return changed{f.State, stateOf(now)}
	}
	settlement, err := f.settlement(now)
	if err != nil {
		return err
	}
	if err := settlement.Check(); err != nil {
		return mistake("The decision can't be stored: " + err.Error())
	}
	seen := onlyonce.Record{ID: now.ID, Fence: f.Fence, State: now.State}
	if c.auditor != nil {
		err = c.auditor.ResolveAudited(ctx, seen, settlement, d)
	} else {
		err = c.resolver.Resolve(ctx, seen, settlement)
	}
	if c.onDecision != nil {
		c.onDecision(now.ID)
	}
	c.log.InfoContext(ctx, "console: a person decided about a record", "actor", d.Actor, "action", f.Action, "record_id", id[:16], "reason", d.Reason, "error", err)
	if errors.Is(err, onlyonce.ErrKeyExpired) { // since the record was looked up
		return changed{f.State, string(onlyonce.StateRemembered)}
	}
	if err != nil && !errors.Is(err, onlyonce.ErrLost) && !errors.Is(err, onlyonce.ErrInFlight) && !errors.Is(err, onlyonce.ErrNotFound) && !errors.Is(err, onlyonce.ErrTooLarge) {
		return inDoubt{err}
	}
	return err
}

// changed is the error of a decision about a record that is no longer as the person saw it.
type changed struct{ from, to string }

func (c changed) Error() string {
	if c.from == c.to {
		return "Nothing was decided: an attempt began or ended, or someone else decided, since you opened the page. This is the record now."
	}
	return fmt.Sprintf("Nothing was decided: the record was %s when you opened the page, and is %s now.", c.from, c.to)
}

// inDoubt is the error of a store that did not say whether a decision took effect.
type inDoubt struct{ error }

func (e inDoubt) Unwrap() error { return e.error }

// explain returns the text about an error for a person, and the status.
func (c *console) explain(r *http.Request, err error) (string, int) {
	var m mistake
	var other changed
	var doubt inDoubt
	switch {
	case errors.As(err, &m):
		return string(m), http.StatusUnprocessableEntity
	case errors.As(err, &other):
		return other.Error(), http.StatusConflict
	case errors.Is(err, onlyonce.ErrInFlight):
		return "Nothing was decided: an attempt holds the command. Wait until it ends, or until its lease lapses.", http.StatusConflict
	case errors.Is(err, onlyonce.ErrLost):
		return changed{}.Error(), http.StatusConflict
	case errors.Is(err, onlyonce.ErrNotFound):
		return "Nothing was decided: the record no longer exists.", http.StatusConflict
	case errors.Is(err, onlyonce.ErrTooLarge):
		return "Nothing was decided: the response is larger than the store accepts.", http.StatusUnprocessableEntity
	case errors.As(err, &doubt):
		return "The store did not confirm the decision. It may have taken effect: look at the life of the record before you decide again.", http.StatusServiceUnavailable
	}
	c.log.WarnContext(r.Context(), "console: the store could not be used", "error", err)
	return "Nothing was decided: the store could not be read. The server's log says why.", http.StatusServiceUnavailable
}
