package httponce

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// admit counts the request and takes the first memory for its body, or says why
// not.
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
	n, class := firstGrantOf(c.r)
	taken, refused := l.quota.enter(c, tenant, n, class)
	if refused != nil {
		return refused
	}
	if !taken {
		if p := c.scratch.incoming.wait(c.r.Context(), memoryWait, n, class); p != nil {
			l.free(c)
			return p
		}
	}
	return nil
}

// admitOpen is admit for a request without a key.
func (l *middleware) admitOpen(c *call) *Problem {
	if p := l.tooLong(c.r); p != nil {
		return p
	}
	u, s := l.quota.usage, c.scratch
	s.incoming.begin(l.quota, &u.bodies, nil)
	s.outgoing.begin(l.quota, &u.answers, nil)
	n, class := firstGrantOf(c.r)
	return s.incoming.wait(c.r.Context(), memoryWait, n, class)
}

func (l *middleware) tooLong(r *http.Request) *Problem {
	if !hasBody(r) || r.ContentLength <= l.cfg.MaxBody {
		return nil
	}
	p := bodyTooLarge
	p.Err = errBodyTooLarge
	return &p
}

// dropBody gives up the request's body, which nobody reads any more, before its client
// takes the answer: that may be long.
func (l *middleware) dropBody(c *call) {
	s := c.scratch
	if s.incoming.held == 0 {
		return
	}
	s.text, s.body = nil, nil
	u := l.quota.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	s.incoming.giveBack()
}

// free ends the use that the request makes of memory and of its tenant's quota.
func (l *middleware) free(c *call) {
	switch u, s := l.quota.usage, c.scratch; {
	case c.allowed != nil:
		l.quota.release(c, c.attempt != nil && c.attempt.Number() == 1)
		c.allowed, c.stored = nil, 0
	case s.incoming.held > 0, s.outgoing.held > 0: // admitOpen let it in
		u.mu.Lock()
		defer u.mu.Unlock()
		s.incoming.giveBack()
		s.outgoing.giveBack()
	}
}

// recordBytes is what a record counts beside its answer.
const recordBytes = 512

// account counts what is stored of the call.
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
		l.quota.keep.Store(int64(rec.KeepLeft))
	}
}
