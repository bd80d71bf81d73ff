package httponce

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// sendResponse lets the answer go to its client.
func (l *middleware) sendResponse(c *call, recorded bool) {
	x := c.x
	if recorded && x.attempt != nil {
		rec := x.attempt.Record()
		l.account(c, rec)
		if expiresLater(rec) {
			x.expires[0] = l.dates.after(rec.KeepLeft)
			x.answer.w.Header()[headerExpires] = x.expires[:]
		}
	}
	x.answer.writeHead()
	l.send(c, x.answer.body)
}

// expiresLater reports whether a record is replayed until it expires.
func expiresLater(r onlyonce.Record) bool {
	return r.KeepLeft > 0 && (r.State == onlyonce.StateCompleted || r.State == onlyonce.StateFailed && r.Final)
}

// dates writes times as HTTP does, and remembers the last one: most answers of one
// second expire in the same second.
type dates struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   string
}

func (d *dates) after(left time.Duration) string {
	t := time.Now().Add(left)
	if last := d.last.Load(); last != nil && last.second == t.Unix() {
		return last.text
	}
	made := &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
	d.last.Store(made)
	return made.text
}
