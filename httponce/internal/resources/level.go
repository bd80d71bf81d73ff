package resources

import "time"

// A level rises with use and falls with time.
type level struct {
	high float64 // at the time at
	at   time.Time
}

// fall lowers the level to what it is at the time now.
func (l *level) fall(now time.Time, perSec float64) {
	l.high = max(l.high-now.Sub(l.at).Seconds()*perSec, 0)
	l.at = now
}

// rise raises the level by n at the time now.
func (l *level) rise(now time.Time, n, perSec float64) {
	l.fall(now, perSec)
	l.high += n
}

// full returns how long it takes until the level can rise by more without
// exceeding limit. It returns 0 if the level can do so now.
func (l *level) full(more, limit, perSec float64) time.Duration {
	if l.high+more <= limit {
		return 0
	}
	l.fall(time.Now(), perSec)
	if over := l.high + more - limit; over > 0 {
		return max(time.Duration(over/perSec*float64(time.Second)), time.Millisecond)
	}
	return 0
}
