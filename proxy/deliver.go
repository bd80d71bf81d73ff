package proxy

import (
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A delivery gives an upstream's answer to the client. httponce holds it back until
// all of it has come, so that it can be recorded before its first byte leaves;
// unless it is longer than what is recorded, or a stream of events.
type delivery struct {
	rt     *route
	w      slots.Response
	res    *h1.Response
	begun  bool
	events bool
}

// deliver delivers the answer whose head has been received, and ends with it.
func (rt *route) deliver(w slots.Response, r *http.Request, res *h1.Response) {
	d := delivery{rt: rt, w: w, res: res}
	d.events = isEvents(res.Header())
	if s := res.Status(); s == http.StatusBadGateway || s == http.StatusGatewayTimeout {
		httponce.Unknown(r)
	}
	if limit := rt.link.BodyTimeout; limit > 0 && !d.events {
		res.SetDeadline(time.Now().Add(limit))
	}
	if err := res.Body(d.take); err != nil {
		res.Close()
		httponce.Unknown(r)
		if d.begun && !httponce.Discard(r) {
			rt.cfg.report(r, err)
			panic(http.ErrAbortHandler) // so that the client sees that it is not whole
		}
		rt.reject(w, r, lostProblem(err), err)
		return
	}
	if !d.begun {
		d.begin()
	}
	d.trailer()
	res.Release()
}

// take takes a piece of the body.
func (d *delivery) take(piece []byte) bool {
	if !d.begun {
		d.begin()
	}
	if _, err := d.w.Write(piece); err != nil {
		return false // the client has gone
	}
	if d.events {
		_ = d.w.FlushError() // what it fails of, the next Write fails of
	}
	return true
}

// begin writes the head.
func (d *delivery) begin() {
	d.begun = true
	h, fields := d.w.Header(), d.res.Header()
	values := make([]string, len(fields))
	for i, f := range fields {
		if !d.rt.returns(f.Name, fields) {
			continue
		}
		values[i] = f.Value
		if vs := h[f.Name]; len(vs) > 0 {
			h[f.Name] = append(vs, f.Value)
		} else {
			h[f.Name] = values[i : i+1 : i+1]
		}
	}
	d.rt.setAnswer(h)
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // else net/http guesses what the upstream did not say
	}
	d.w.WriteHeader(d.res.Status())
	if d.events {
		_ = d.w.FlushError()
	}
}

// trailer sets what came after the body.
func (d *delivery) trailer() {
	for _, f := range d.res.Trailer() {
		if !syntax.IsForbiddenInTrailer(f.Name) && d.rt.returns(f.Name, nil) {
			d.w.Header().Add(http.TrailerPrefix+f.Name, f.Value)
		}
	}
}

// returns reports whether a header of the answer goes to the client.
func (rt *route) returns(name string, fields []h1.Field) bool {
	if isHopByHop(name) || isProxyHeader(spelled(name)) {
		return false
	}
	for _, f := range fields {
		if f.Name == "Connection" && syntax.HasToken(f.Value, name) {
			return false
		}
	}
	return true
}

// isEvents reports whether an answer is a stream of events, which is of no use
// when it is held back.
func isEvents(fields []h1.Field) bool {
	for _, f := range fields {
		if f.Name == "Content-Type" {
			kind, _, _ := strings.Cut(f.Value, ";")
			return strings.EqualFold(syntax.TrimBlanks(kind), "text/event-stream")
		}
	}
	return false
}
