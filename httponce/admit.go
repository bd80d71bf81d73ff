package httponce

import (
	"net/http"

	"github.com/onlyonce-go/onlyonce"
)

// admit counts the request and takes the first memory for its body, or says why
// not.
func (l *layer) admit(c *call) *Problem {
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
		if p := l.quota.usage.wait(c.r.Context(), c.grant(l), n, class); p != nil {
			l.free(c)
			return p
		}
	}
	return nil
}

// admitOpen is admit for a request without a key.
func (l *layer) admitOpen(c *call) *Problem {
	if p := l.tooLong(c.r); p != nil {
		return p
	}
	u := l.quota.usage
	u.mu.Lock()
	u.list(&c.scratch.upload, c.grant(l))
	u.mu.Unlock()
	n, class := firstGrantOf(c.r)
	p := u.wait(c.r.Context(), c.grant(l), n, class)
	if p != nil {
		l.free(c)
	}
	return p
}

func (l *layer) tooLong(r *http.Request) *Problem {
	if !hasBody(r) || r.ContentLength <= l.cfg.MaxBody {
		return nil
	}
	p := bodyTooLarge
	p.Err = errBodyTooLarge
	return &p
}

// grant returns on whose account the call takes memory.
func (c *call) grant(l *layer) grant {
	g := grant{quota: l.quota, held: &c.held, answer: &c.answer}
	if c.allowed != nil {
		g.share = c.allowed.share
	}
	return g
}

// takeAnswer takes n bytes for the call's answer.
func (l *layer) takeAnswer(c *call, n int) bool {
	return l.quota.usage.takeAnswer(c.grant(l), int64(n))
}

// giveBackAnswer ends the use of n bytes that were taken for the call's answer.
func (l *layer) giveBackAnswer(c *call, n int) {
	u := l.quota.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.addAnswer(c.grant(l), -int64(n))
}

// dropBody gives up the request's body, which nobody reads any more, before its client
// takes the answer: that may be long.
func (l *layer) dropBody(c *call) {
	if c.held == 0 {
		return
	}
	c.scratch.text, c.scratch.body = nil, nil
	u := l.quota.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unlist(&c.scratch.upload)
	u.giveBack(c.grant(l), c.held)
}

// free ends the use that the request makes of memory and of its tenant's quota.
func (l *layer) free(c *call) {
	switch u := l.quota.usage; {
	case c.allowed != nil:
		l.quota.leave(c, c.attempt != nil && c.attempt.Number() == 1)
		c.allowed, c.stored = nil, 0
	case c.scratch.upload.listed, c.held > 0, c.answer > 0: // admitOpen let it in
		u.mu.Lock()
		defer u.mu.Unlock()
		u.unlist(&c.scratch.upload)
		u.addAnswer(c.grant(l), -c.answer)
		u.giveBack(c.grant(l), c.held)
	}
}

// recordBytes is what a record counts beside its answer.
const recordBytes = 512

// account counts what is stored of the call.
func (l *layer) account(c *call, rec onlyonce.Record) {
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
