package proxy

import (
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

// A delivery gives an upstream's answer to the client. httponce holds it back until
// all of it has come, so that it can be recorded before its first byte leaves;
// unless it is longer than what is recorded, or a stream of events.
type delivery struct {
	rt     *route
	w      heldAnswer
	c      *conn
	begun  bool
	events bool
	gone   bool // the client
}

// deliver delivers the answer whose head the conn has received, and ends with the
// conn.
func (rt *route) deliver(w heldAnswer, r *http.Request, c *conn) {
	d := delivery{rt: rt, w: w, c: c}
	d.events = isEvents(c.reply.fields)
	if s := c.reply.status; s == http.StatusBadGateway || s == http.StatusGatewayTimeout {
		httponce.Unknown(r)
	}
	if limit := rt.link.BodyTimeout; limit > 0 && !d.events {
		c.end = time.Now().Add(limit)
	}
	if err := c.body(d.take); err != nil {
		c.Close()
		httponce.Unknown(r)
		if d.begun && !httponce.Discard(r) {
			rt.table.report(r, err)
			panic(http.ErrAbortHandler) // so that the client sees that it is not whole
		}
		rt.refuse(w, r, lost(err), err)
		return
	}
	keep := c.owner != "" && c.whole && !c.reply.close && !d.gone && c.at == len(c.in)
	if !d.begun {
		d.begin()
	}
	d.trailer()
	if keep {
		rt.link.pool.put(c)
	} else {
		c.Close()
	}
}

// take takes a piece of the body.
func (d *delivery) take(piece []byte) bool {
	if !d.begun {
		d.begin()
	}
	if _, err := d.w.Write(piece); err != nil {
		d.gone = true
		return false
	}
	if d.events {
		_ = d.w.FlushError() // what it fails of, the next Write fails of
	}
	return true
}

// begin writes the head.
func (d *delivery) begin() {
	d.begun = true
	h, fields := d.w.Header(), d.c.reply.fields
	if d.c.reply.trailer > 0 {
		fields = fields[:d.c.reply.trailer]
	}
	values := make([]string, len(fields))
	for i, f := range fields {
		if !d.rt.returns(f.name, fields) {
			continue
		}
		values[i] = f.value
		if vs := h[f.name]; len(vs) > 0 {
			h[f.name] = append(vs, f.value)
		} else {
			h[f.name] = values[i : i+1 : i+1]
		}
	}
	d.rt.setAnswer(h)
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // else net/http guesses what the server behind did not say
	}
	d.w.WriteHeader(d.c.reply.status)
	if d.events {
		_ = d.w.FlushError()
	}
}

// trailer sets what came after the body.
func (d *delivery) trailer() {
	if d.c.reply.trailer == 0 {
		return
	}
	h := d.w.Header()
	for _, f := range d.c.reply.fields[d.c.reply.trailer:] {
		if !ofMessage(f.name) && d.rt.returns(f.name, nil) {
			h.Add(http.TrailerPrefix+f.name, f.value)
		}
	}
}

// returns reports whether a header of the answer goes to the client.
func (rt *route) returns(name string, fields []field) bool {
	if ofConnection(name) || ours(spelled(name)) {
		return false
	}
	for _, f := range fields {
		if f.name == "Connection" && hasToken(f.value, name) {
			return false
		}
	}
	return true
}

// ofMessage reports whether a field says how a message is to be read, or who may
// see it, so that it can't come after it: RFC 9110, section 6.5.1.
func ofMessage(name string) bool {
	switch name {
	case "Content-Length", "Content-Type", "Content-Encoding", "Content-Range", "Host", "Authorization", "Set-Cookie", "Cache-Control", "Www-Authenticate", "Location":
		return true
	}
	return strings.HasPrefix(name, "Idempotency-")
}

// isEvents reports whether an answer is a stream of events, which is of no use
// when it is held back.
func isEvents(fields []field) bool {
	for _, f := range fields {
		if f.name == "Content-Type" {
			kind, _, _ := strings.Cut(f.value, ";")
			return strings.EqualFold(trim(kind), "text/event-stream")
		}
	}
	return false
}
