package resources

import (
	"slices"
	"time"
)

// A level rises with use and falls with time.
type level struct {
	high float64 // at the time at
	at   time.Time
}

// fall lowers the level to its value at the time now.
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

// mostKeeps is the number of different keeps for which a stored counts separately.
const mostKeeps = 8

// A stored counts the bytes of records. Those with one keep fall together, by the limit
// within that keep: records expire as evenly as they were stored.
type stored struct{ levels []keptLevel }

type keptLevel struct {
	level
	keep time.Duration
}

func (l *keptLevel) perSec(limit int64) float64 { return float64(limit) / l.keep.Seconds() }

// rise counts n bytes more, which are kept for so long.
func (s *stored) rise(now time.Time, n int, limit int64, keep time.Duration) {
	l := s.kept(now, limit, keep)
	l.rise(now, float64(n), l.perSec(limit))
}

// kept returns the level of a keep. If there is no room for it, that of the next
// longer one, or else the longest, which then becomes longer.
func (s *stored) kept(now time.Time, limit int64, keep time.Duration) *keptLevel {
	i, known := slices.BinarySearchFunc(s.levels, keep, func(l keptLevel, keep time.Duration) int { return int(min(max(l.keep-keep, -1), 1)) })
	if known {
		return &s.levels[i]
	}
	if len(s.levels) == mostKeeps {
		s.fall(now, limit)
		if len(s.levels) < mostKeeps {
			return s.kept(now, limit, keep)
		}
		l := &s.levels[min(i, mostKeeps-1)]
		l.keep = max(l.keep, keep)
		return l
	}
	s.levels = slices.Insert(s.levels, i, keptLevel{level{at: now}, keep})
	return &s.levels[i]
}

// fall lowers the levels to their values at the time now, and returns their sum.
func (s *stored) fall(now time.Time, limit int64) float64 {
	for i := range s.levels {
		l := &s.levels[i]
		l.fall(now, l.perSec(limit))
	}
	s.levels = slices.DeleteFunc(s.levels, func(l keptLevel) bool { return l.high == 0 })
	return s.sum()
}

func (s *stored) sum() (sum float64) {
	for i := range s.levels {
		sum += s.levels[i].high
	}
	return sum
}

// full returns about how long it takes until no more than limit is stored. It returns
// 0 if that is so now.
func (s *stored) full(limit int64) time.Duration {
	if s.sum() <= float64(limit) {
		return 0
	}
	over := s.fall(time.Now(), limit) - float64(limit)
	if over <= 0 {
		return 0
	}
	perSec := 0.0
	for i := range s.levels {
		perSec += s.levels[i].perSec(limit)
	}
	return max(time.Duration(over/perSec*float64(time.Second)), time.Millisecond)
}
