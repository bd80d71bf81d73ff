package httponce

import (
	"net/http"
	"sync/atomic"
	"time"
)

// dates formats times as HTTP dates and remembers the last one: most responses
// of one second expire in the same second.
type dates struct{ last atomic.Pointer[date] }

type date struct {
	second int64
	text   string
}

// after returns the date at which so much time will have passed.
func (d *dates) after(left time.Duration) string {
	t := time.Now().Add(left)
	if last := d.last.Load(); last != nil && last.second == t.Unix() {
		return last.text
	}
	made := &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
	d.last.Store(made)
	return made.text
}
