package sqlrow

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// What is settled stays for briefest at least, so that a statement that gave a
// fence within Slow has met every record that has a higher one: its row was
// there. During a slower one a command may have lived its whole life, its purge
// included.
const (
	briefest = 100 * time.Millisecond
	Slow     = briefest / 2
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
