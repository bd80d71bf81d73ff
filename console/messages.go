package console

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/visible"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// A messagesPage shows the parked messages of an outbox.
type messagesPage struct {
	Rows    []messageRow
	More    string // address of the next page
	Waiting string
	Parked  string
	Reason  string // that was entered
	Audited bool   // the outbox keeps an audit trail
	Trail   []decidedMessage
	Done    string
	Problem string
}

// A messageRow is a parked message.
type messageRow struct {
	Value                                       string // sent by the form
	Seq                                         int64
	ID, Topic, Key, Tenant, Error, Created, Ago string
	Attempts                                    int
	Payload                                     preview
}

// A decidedMessage is a decision about a message that was parked.
type decidedMessage struct {
	Title, Topic, Key, Actor, Reason, Error, When, Ago string
	Seq                                                int64
}

// decisionsShown is how many decisions about messages are shown.
const decisionsShown = 20

func (c *console) messages(w http.ResponseWriter, r *http.Request, s *session) {
	if c.outbox == nil {
		c.problem(w, s, http.StatusNotFound, "This store has no outbox.")
		return
	}
	p := messagesPage{}
	if n, err := strconv.Atoi(r.URL.Query().Get("requeued")); err == nil {
		p.Done = fmt.Sprintf("Requeued: %d. They are published again.", n)
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("discarded")); err == nil {
		p.Done = fmt.Sprintf("Discarded: %d. They are never published.", n)
	}
	c.showMessages(w, r, s, http.StatusOK, p)
}

func (c *console) showMessages(w http.ResponseWriter, r *http.Request, s *session, status int, p messagesPage) {
	ctx, cancel := context.WithTimeout(r.Context(), listWithin)
	defer cancel()
	after := int64(math.MinInt64)
	if given, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64); err == nil {
		after = given
	}
	list, err := c.outbox.Parked(ctx, after, pageSize+1)
	if err != nil {
		c.failed(w, r, s, err)
		return
	}
	if len(list) > pageSize {
		list = list[:pageSize]
		p.More = fmt.Sprintf("%smessages?after=%d", c.path, list[pageSize-1].Seq)
	}
	for i := range list {
		p.Rows = append(p.Rows, c.messageRow(&list[i]))
	}
	if p.Audited = c.boxAuditor != nil; p.Audited {
		trail, err := c.boxAuditor.AuditTrail(ctx, 0, decisionsShown)
		if err != nil {
			c.failed(w, r, s, err)
			return
		}
		for i := range trail {
			p.Trail = append(p.Trail, c.decidedMessage(&trail[i]))
		}
	}
	if lag := c.gauges.fresh(ctx); lag.lagKnown {
		p.Waiting, p.Parked = number(lag.lag.Waiting), number(lag.lag.Parked)
	}
	c.render(w, s, status, "messages", "Messages", p)
}

func (c *console) messageRow(e *outbox.Entry) messageRow {
	header := make(map[string][]string)
	for name, value := range e.Headers {
		header[name] = []string{value}
	}
	return messageRow{
		Value: messageValue(e), Seq: e.Seq, ID: show(visible.Cut(e.ID, 200)), Topic: show(visible.Cut(e.Topic, 200)), Key: show(visible.Cut(e.Key, 200)), Tenant: show(visible.Cut(e.Tenant, 200)),
		Error: show(c.redact.text(visible.Cut(e.Error, 1024))), Created: instant(e.CreatedAt), Ago: ago(e.CreatedAt), Attempts: e.Attempts,
		Payload: c.redact.preview(onlyonce.Result{Header: header, Body: e.Payload}, listedSize),
	}
}

func (c *console) decidedMessage(e *outbox.AuditEntry) decidedMessage {
	title := "Requeued"
	if e.Action == outbox.ActionDiscard {
		title = "Discarded"
	}
	m := &e.Message
	return decidedMessage{
		Title: title, Seq: m.Seq, Topic: show(visible.Cut(m.Topic, 200)), Key: show(visible.Cut(m.Key, 200)),
		Actor: show(e.Actor), Reason: show(e.Reason), Error: show(c.redact.text(visible.Cut(m.Error, 1024))), When: instant(e.At), Ago: ago(e.At),
	}
}

// messageValue identifies a message in the state that the person saw. After another failed
// attempt to publish it, the value is different.
func messageValue(e *outbox.Entry) string {
	seen := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", e.Seq, e.Attempts, e.Error))
	return fmt.Sprintf("%d.%s", e.Seq, hex.EncodeToString(seen[:8]))
}

// decideMessage requeues or discards the chosen messages.
func (c *console) decideMessage(w http.ResponseWriter, r *http.Request, s *session) {
	if c.outbox == nil {
		c.problem(w, s, http.StatusNotFound, "This store has no outbox.")
		return
	}
	reason := strings.TrimSpace(strings.ReplaceAll(r.PostFormValue("reason"), "\r\n", "\n"))
	action := r.PostFormValue("action")
	chosen := r.PostForm["message"]
	wrong := func(status int, text string) {
		c.showMessages(w, r, s, status, messagesPage{Problem: text, Reason: reason})
	}
	d := onlyonce.Decision{Actor: s.Name, Reason: reason}
	switch {
	case action != outbox.ActionRequeue && action != outbox.ActionDiscard:
		wrong(http.StatusUnprocessableEntity, "Choose what becomes of the messages.")
		return
	case len(chosen) == 0 || len(chosen) > pageSize:
		wrong(http.StatusUnprocessableEntity, "Select the messages first.")
		return
	case d.Check() != nil:
		wrong(http.StatusUnprocessableEntity, "Write a reason, of at most 2048 bytes.")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), decideWithin)
	defer cancel()
	seqs, err := c.unchanged(ctx, chosen)
	switch {
	case err != nil:
		c.failed(w, r, s, err)
		return
	case len(seqs) < len(chosen):
		wrong(http.StatusConflict, "Nothing was changed: some of the messages are no longer as you saw them. Look at them again.")
		return
	}
	to := "requeued"
	if action == outbox.ActionDiscard {
		to = "discarded"
	}
	n, err := c.carryOut(ctx, action, d, seqs)
	c.log.InfoContext(ctx, "console: a person decided about parked messages", "actor", d.Actor, "action", action, "messages", seqs, "changed", n, "reason", d.Reason, "error", err)
	if err != nil {
		c.failed(w, r, s, err)
		return
	}
	c.gauges.refresh(ctx)
	http.Redirect(w, r, fmt.Sprintf("%smessages?%s=%d", c.path, to, n), http.StatusSeeOther)
}

// carryOut requeues or discards messages.
func (c *console) carryOut(ctx context.Context, action string, d onlyonce.Decision, seqs []int64) (int, error) {
	switch requeue := action == outbox.ActionRequeue; {
	case requeue && c.boxAuditor != nil:
		return c.boxAuditor.RequeueAudited(ctx, outbox.Decision(d), seqs...)
	case requeue:
		return c.outbox.Requeue(ctx, seqs...)
	case c.boxAuditor != nil:
		return c.boxAuditor.DiscardAudited(ctx, outbox.Decision(d), seqs...)
	}
	return c.outbox.Discard(ctx, seqs...)
}

// unchanged returns the numbers of the messages that are still as the person saw them.
func (c *console) unchanged(ctx context.Context, chosen []string) (seqs []int64, err error) {
	for _, value := range chosen {
		text, _, _ := strings.Cut(value, ".")
		seq, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seq == math.MinInt64 {
			continue
		}
		now, err := c.outbox.Parked(ctx, seq-1, 1)
		if err != nil {
			return nil, err
		}
		if len(now) == 1 && messageValue(&now[0]) == value {
			seqs = append(seqs, seq)
		}
	}
	return seqs, nil
}
