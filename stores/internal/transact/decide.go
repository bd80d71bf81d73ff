package transact

import (
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// RetryAfter is the LeaseLeft of a command that a transaction runs: when a retry is
// worthwhile.
const RetryAfter = time.Second

// decide reports whether the function runs, given the transaction's view of the record. It sets the
// record: the one that the function gets, or the one that the caller gets instead.
func (r *run[TX]) decide() (runs bool, err error) {
	row := r.Seen.Row
	if row != nil {
		if err := row.Check(r.Key.ID); err != nil {
			return false, err
		}
	}
	switch {
	case r.Hold != nil && !row.HeldBy(r.Hold):
		return false, onlyonce.ErrLost
	case r.Hold != nil:
		r.Record = row.Record
		return true, nil
	case row.StandsAgainst(r.Claim):
		r.Record = row.Record
		return false, nil
	case r.Seen.Lock != LockMine:
		r.Record = Running(r.Claim, &r.Seen)
		return false, nil
	}
	fence := max(r.Seen.Now, r.Seen.Floor+1, r.issued+1)
	if row != nil {
		fence = max(fence, row.Fence+1)
	}
	r.Record = record.Next(r.Claim, row, fence, fence)
	return true, nil
}

// Running is the record of a command that another transaction runs, which has not
// written it yet.
func Running(c *onlyonce.Claim, seen *View) onlyonce.Record {
	r := onlyonce.Record{
		ID: c.ID, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Attempt: 1,
		CreatedAt: time.UnixMicro(seen.Now).UTC(), LeaseLeft: RetryAfter,
	}
	if seen.Row != nil && !seen.Row.Expired {
		r.Attempt, r.CreatedAt = seen.Row.Attempt+1, seen.Row.CreatedAt
	}
	if seen.Lock == LockOther {
		r.Fingerprint = Another
	}
	return r
}
