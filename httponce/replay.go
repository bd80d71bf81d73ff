package httponce

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// replay gives the stored answer.
func (l *middleware) replay(c *call, a *onlyonce.Attempt) {
	c.reset()
	rec := a.Record()
	if rec.State == onlyonce.StateFailed && rec.Result.Status == 0 {
		p := failureKept
		p.Err = a.Err()
		l.refuseKeyed(c.w, c.r, c.request.ID.Key, p)
		return
	}
	if n := int64(len(rec.Result.Body)); n > freeAnswer {
		l.dropBody(c)
		if refused := c.scratch.uses.Response.Wait(c.r.Context(), n-freeAnswer, n); refused != nil {
			l.refuseKeyed(c.w, c.r, c.request.ID.Key, *problemOfRefusal(refused))
			return
		}
	}
	h := c.w.Header()
	all := make([]string, 0, len(rec.Result.Header)+2) // the store's own slices are not given away
	add := func(vs ...string) []string {
		from := len(all)
		all = append(all, vs...)
		return all[from:len(all):len(all)]
	}
	for name, vs := range rec.Result.Header {
		h[name] = add(vs...)
	}
	if _, ok := h["Content-Type"]; !ok && len(rec.Result.Body) > 0 {
		h["Content-Type"] = nil // as it was the first time: net/http is not to guess
	}
	h[headerReplayed] = add("true")
	if expiresLater(rec) {
		h[headerExpires] = add(l.dates.after(rec.KeepLeft))
	}
	c.w.WriteHeader(max(rec.Result.Status, http.StatusOK))
	l.send(c, rec.Result.Body)
}

// refuseCall answers with what an error of the root package means, and drops what
// a handler may have written.
func (l *middleware) refuseCall(c *call, err error) {
	c.reset()
	l.refuseKeyed(c.w, c.r, c.request.ID.Key, l.problem(err))
}

// reset drops the header that a handler has set.
func (c *call) reset() {
	if c.x != nil {
		c.scratch.base.restore(c.w.Header())
	}
}

// problem says what an error of the root package means to a client.
func (l *middleware) problem(err error) Problem {
	p := problemOf(err, storeUnavailable)
	if p.Code == keyReused.Code {
		p.Status = l.cfg.MismatchStatus
	}
	return p
}
