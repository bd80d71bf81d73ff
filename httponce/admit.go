package httponce

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce/internal/resources"
)

// admit counts the request and takes the first memory for its body. It returns
// why it can't, or nil.
func (l *middleware) admit(c *call) *Problem {
	tenant := c.request.ID.Tenant
	if p := l.tooLong(c.r); p != nil {
		return p
	}
	if l.cfg.Refuse != nil {
		if p := l.cfg.Refuse(c.r, tenant); p != nil {
			return p
		}
	}
	return problemOfRefusal(l.quota.Admit(c.r.Context(), &c.scratch.uses, tenant, bodyLength(c.r)))
}

// admitOpen is admit for a request without a key.
func (l *middleware) admitOpen(c *call) *Problem {
	if p := l.tooLong(c.r); p != nil {
		return p
	}
	return problemOfRefusal(l.quota.AdmitUncounted(c.r.Context(), &c.scratch.uses, bodyLength(c.r)))
}

// problemOfRefusal returns the problem that tells a client about a refusal, or
// nil.
func problemOfRefusal(refused *resources.Refusal) *Problem {
	if refused == nil {
		return nil
	}
	p := overloaded
	if refused.OfTenant {
		p = tooMany
	}
	p.RetryAfter = refused.RetryAfter
	return &p
}

func (l *middleware) tooLong(r *http.Request) *Problem {
	if !hasBody(r) || r.ContentLength <= l.cfg.MaxBody {
		return nil
	}
	p := bodyTooLarge
	p.Err = resources.ErrTooLarge
	return &p
}

// dropBody drops the request's body, which nobody reads any more, before the
// response is sent to its client: that may take long.
func (l *middleware) dropBody(c *call) {
	s := c.scratch
	if s.uses.Body.Held() == 0 {
		return
	}
	s.text, s.body = nil, nil
	s.uses.Body.GiveBack()
}

// free releases what the request uses of memory and of its tenant's quota.
func (l *middleware) free(c *call) {
	c.scratch.uses.Release(c.attempt != nil && c.attempt.Number() == 1, c.stored)
}

// recordBytes is what a record counts in addition to its response.
const recordBytes = 512

// account notes how many bytes are stored of the call.
func (l *middleware) account(c *call, rec onlyonce.Record) {
	if rec.State != onlyonce.StateCompleted && rec.State != onlyonce.StateFailed {
		return
	}
	c.stored = recordBytes + len(rec.Result.Body)
	for name, vs := range rec.Result.Header {
		for _, v := range vs {
			c.stored += len(name) + len(v)
		}
	}
	if rec.KeepLeft > 0 {
		l.quota.SetKeep(rec.KeepLeft)
	}
}
