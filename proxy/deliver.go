package proxy

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/proxy/internal/h1"
	"github.com/onlyonce-go/onlyonce/proxy/internal/slots"
	"github.com/onlyonce-go/onlyonce/proxy/internal/syntax"
)

// A delivery writes an upstream's response to the client. httponce holds the response
// back until all of it has been received, so that it is recorded before its first
// byte is sent. Longer responses than are recorded, and event streams, are not held
// back.
type delivery struct {
	rt     *route
	w      slots.Response
	res    *h1.Response
	begun  bool // the head has been written
	events bool // the response is an event stream

	client  context.Context // of the client, which may go while the response comes
	limited bool            // the upstream has a time limit for the rest
}

// deliver writes a response whose head has been received, and releases it. The request
// was sent at the time began.
func (rt *route) deliver(w slots.Response, r *http.Request, res *h1.Response, began time.Time) {
	d := delivery{rt: rt, w: w, res: res, client: httponce.ClientContext(r)}
	d.events = httpfield.IsEventStream(contentType(res.Header()))
	if s := res.Status(); rt.leavesUnknown(s) {
		httponce.Unknown(r, statusError(began, s))
	}
	if !d.events {
		d.limit()
	}
	if err := res.Body(d.write); err != nil {
		res.Close()
		err = lostError(began, err)
		httponce.Unknown(r, err)
		if d.begun && !httponce.Discard(r) {
			rt.cfg.report(r, err)
			panic(http.ErrAbortHandler) // the client must see that the response is truncated
		}
		rt.reject(w, r, rt.lostProblem(r, err), err)
		return
	}
	if !d.begun {
		d.begin()
	}
	setTrailer(d.w.Header(), res.Trailer())
	res.Release()
}

// write writes a piece of the body. It returns false if the client has gone.
func (d *delivery) write(piece []byte) bool {
	if !d.begun {
		d.begin()
	}
	if _, err := d.w.Write(piece); err != nil {
		return false
	}
	if d.events {
		_ = d.w.FlushError() // if it fails, so does the next Write
		if d.client.Err() != nil {
			d.limit() // otherwise, an endless stream would go on for nobody
		}
	}
	return true
}

// limit limits how long the rest of the response may be waited for.
func (d *delivery) limit() {
	if limit := d.rt.conns.BodyTimeout; limit > 0 && !d.limited {
		d.res.SetTimeLimit(limit)
		d.limited = true
	}
}

// begin writes the status and the header.
func (d *delivery) begin() {
	d.begun = true
	d.rt.addHeader(d.w.Header(), d.res.Header())
	d.w.WriteHeader(d.res.Status())
	if d.events {
		_ = d.w.FlushError()
	}
}

// addHeader adds the header of an upstream's response to h.
func (rt *route) addHeader(h http.Header, fields []h1.Field) {
	addFields(h, fields)
	rt.changeHeader(h)
	if len(h["Content-Type"]) == 0 {
		h["Content-Type"] = nil // otherwise net/http would guess one
	}
}

// addFields adds the fields that are passed on to the client to h.
func addFields(h http.Header, fields []h1.Field) {
	values := make([]string, len(fields))
	hopByHop := connectionNames(fields)
	for i, f := range fields {
		if !returns(f.Name, hopByHop) {
			continue
		}
		values[i] = f.Value
		if vs := h[f.Name]; len(vs) > 0 {
			h[f.Name] = append(vs, f.Value)
		} else {
			h[f.Name] = values[i : i+1 : i+1]
		}
	}
}

// setTrailer sets the trailers that followed the body of a response.
func setTrailer(h http.Header, fields []h1.Field) {
	for _, f := range fields {
		if returnsTrailer(f.Name) {
			h.Add(http.TrailerPrefix+f.Name, f.Value)
		}
	}
}

// returnsTrailer reports whether a trailer of the response is passed on to the client.
func returnsTrailer(name string) bool {
	return !syntax.IsForbiddenInTrailer(name) && returns(name, nil)
}

// returns reports whether a header of the response is passed on to the client. hopByHop are
// the names that its Connection headers list.
func returns(name string, hopByHop map[string]bool) bool {
	return !isHopByHop(name) && !isProxyHeader(spelled(name)) && !hopByHop[name]
}

// connectionNames returns the canonical names that the Connection headers of a response
// list. An upstream chooses how many headers there are, so they are read once.
func connectionNames(fields []h1.Field) map[string]bool {
	var names map[string]bool
	for _, f := range fields {
		if f.Name != "Connection" || f.Value == "keep-alive" { // Keep-Alive is hop-by-hop in any case
			continue
		}
		for name := range strings.SplitSeq(f.Value, ",") {
			if names == nil {
				names = make(map[string]bool)
			}
			names[http.CanonicalHeaderKey(syntax.TrimBlanks(name))] = true
		}
	}
	return names
}

func contentType(fields []h1.Field) string {
	for _, f := range fields {
		if f.Name == "Content-Type" {
			return f.Value
		}
	}
	return ""
}
