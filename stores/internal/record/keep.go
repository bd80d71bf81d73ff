package record

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// What is settled stays for briefest at least. A statement that gives a fence and
// takes longer than Slow looks at the floor of deleted fences again, by the clock of
// the process that sent it. A purge raises that floor, and deletes only once it has
// been up for Spread: by then, every statement that read the lower one has either
// inserted its row, or looks again.
const (
	briefest = 100 * time.Millisecond
	Slow     = 50 * time.Millisecond
	Spread   = 2 * Slow
)

// Keep is how many microseconds a settled record stays; nil: until someone
// resolves it.
func Keep(st *onlyonce.Settlement) *int64 {
	if st.Keep <= 0 {
		return nil
	}
	keep := max(st.Keep, briefest).Microseconds()
	return &keep
}

// LapsedKeep is for how many microseconds a claim's record stays once its lease
// has lapsed; 0: until someone resolves it.
func LapsedKeep(c *onlyonce.Claim) int64 {
	if c.Keep <= 0 {
		return 0
	}
	return max(c.Keep, briefest).Microseconds()
}
