// Package claim is the loop by which a store on a database server claims a command. Each
// of its steps is one statement, and other claims may come between two of them.
package claim

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// Rows are the rows of a store, on which a claim takes its steps.
type Rows interface {
	// Try reports whether the claim tries for the nth time, counted from 0. It
	// waits a little before a repeat.
	Try(n int) bool

	// Create makes the row of a new command, unless there is one.
	Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, given bool, err error)

	// Find returns the row, which may have expired, or nil.
	Find(k *record.Key) (*record.Stored, error)

	// Raise makes the fence of a hold on a new command higher than those of deleted
	// records, and writes it into r. It reports false if it is not known which fence the
	// hold has.
	Raise(k *record.Key, r *onlyonce.Record) (known bool, err error)

	// Take gives the claim the row that was seen, unless the row has changed.
	Take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (r onlyonce.Record, given bool, err error)
}

// Run creates a record, or looks at the one that is there, and takes it over as it was
// seen or not at all. known says that there probably is a record. Run reports false if
// others came first every time, and returns what it saw last.
func Run[R Rows](on R, k *record.Key, c *onlyonce.Claim, known bool) (r onlyonce.Record, last *record.Stored, ok bool, err error) {
	for n := 0; on.Try(n); n++ {
		if !known || n > 0 {
			if r, given, err := on.Create(k, c); given || err != nil {
				return r, nil, true, err
			}
		}
		seen, err := on.Find(k)
		switch {
		case err != nil:
			return onlyonce.Record{}, nil, true, err
		case seen == nil:
			continue
		case seen.HeldBy(&onlyonce.Hold{Owner: c.Owner, Fence: seen.Fence}):
			// A call whose response was lost created the row, and may have been slow.
			if sure, err := on.Raise(k, &seen.Record); sure || err != nil {
				return seen.Record, nil, true, err
			}
			continue
		case seen.StandsAgainst(c):
			return seen.Record, nil, true, nil
		}
		if r, given, err := on.Take(k, c, seen); given || err != nil {
			return r, nil, true, err
		}
		last = seen
	}
	return onlyonce.Record{}, last, false, nil
}
