package record

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A settled record stays for at least briefest. If a statement that gives a fence took
// longer than Slow, by the clock of the process that sent it, the process reads the floor of
// deleted fences again. A purge raises that floor and deletes only Spread later: by then,
// every statement that read the lower floor has either inserted its row, or its process
// reads the floor again.
const (
	briefest = 100 * time.Millisecond
	Slow     = 50 * time.Millisecond
	Spread   = 2 * Slow
)

// Keep returns for how many microseconds a settled record stays; nil: until someone
// resolves it.
func Keep(st *onlyonce.Settlement) *int64 {
	if st.Keep <= 0 {
		return nil
	}
	keep := max(st.Keep, briefest).Microseconds()
	return &keep
}

// LapsedKeep returns for how many microseconds a claim's record stays once its lease
// has lapsed; 0: until someone resolves it.
func LapsedKeep(c *onlyonce.Claim) int64 {
	if c.Keep <= 0 {
		return 0
	}
	return max(c.Keep, briefest).Microseconds()
}
