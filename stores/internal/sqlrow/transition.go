package sqlrow

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Next returns the record of the attempt that a claim begins on a command whose row
// it takes, or which has none. A command that begins anew is given its date, in
// microseconds.
func Next(c *onlyonce.Claim, seen *Stored, createdAt, fence int64) (r onlyonce.Record) {
	if seen == nil || seen.Expired {
		r = c.Next(nil)
		r.CreatedAt = time.UnixMicro(createdAt).UTC()
	} else {
		r = c.Next(&seen.Record)
	}
	r.Fence = fence
	return r
}
