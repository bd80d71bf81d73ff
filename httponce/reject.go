package httponce

import (
	"io"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// readAnyway is how many bytes net/http reads of an unread body before it
// responds.
const readAnyway = 256 << 10

// reject rejects a request with a problem.
func (pt *protection) reject(w http.ResponseWriter, r *http.Request, p Problem) {
	h := w.Header()
	p.Type = blankType
	if pt.cfg.DocsURL != "" {
		p.Type = pt.cfg.DocsURL + "#" + p.Code
		h.Add("Link", "<"+pt.cfg.DocsURL+`>; rel="describedby"`)
	} else {
		p.Title = http.StatusText(p.Status)
	}
	p.setRetryAfter(h)
	if pt.cfg.Problem != nil {
		pt.cfg.Problem(w, r, p)
		return
	}
	p.ServeHTTP(w, r)
}

// rejectUnread rejects a request whose body has not been read to its end. A
// client that sends a long body looks for the response only when it has sent all
// of it, and would lose the response if the connection were closed meanwhile. So
// the rest of the body is read for a while, as RFC 9112, section 9.6, advises.
func (pt *protection) rejectUnread(w http.ResponseWriter, r *http.Request, p Problem) {
	isLong := r.ProtoMajor == 1 && hasBody(r) && (r.ContentLength < 0 || r.ContentLength > readAnyway || p.Status == http.StatusRequestEntityTooLarge)
	if !isLong {
		pt.reject(w, r, p)
		return
	}
	w.Header().Set("Connection", "close")
	pt.reject(w, r, p)
	c := http.NewResponseController(w)
	if len(r.Header["Expect"]) > 0 || c.Flush() != nil || c.SetReadDeadline(time.Now().Add(defaults.ReadOnTime)) != nil {
		return // a client that waits for 100 Continue does not send the body
	}
	_, _ = io.CopyN(io.Discard, r.Body, defaults.ReadOnBytes)
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// reject rejects the call with a problem.
func (c *call) reject(p Problem) { c.rejectTo(c.w, p) }

// rejectTo is reject with another ResponseWriter than the client's.
func (c *call) rejectTo(w http.ResponseWriter, p Problem) {
	p.Key = c.request.ID.Key
	c.protection.reject(w, c.r, p)
}

// rejectUnread rejects the call, whose body has not been read to its end.
func (c *call) rejectUnread(p Problem) {
	p.Key = c.request.ID.Key
	c.protection.rejectUnread(c.w, c.r, p)
}

// rejectError rejects the call with the problem that stands for an error of the root package. It
// drops the header that a handler may have set.
func (c *call) rejectError(err error) {
	c.restoreHeader()
	p := problemOf(err, storeUnavailable)
	if p.Code == keyReused.Code {
		p.Status = c.cfg.MismatchStatus
	}
	c.reject(p)
}

// problemOfRejection returns the problem that tells a client about a rejection, or
// nil if there is none.
func problemOfRejection(rejected *resources.Rejection) *Problem {
	if rejected == nil {
		return nil
	}
	p := overloaded
	if rejected.OfTenant {
		p = tooMany
	}
	p.RetryAfter, p.Limit = rejected.RetryAfter, rejected.Limit
	return &p
}
