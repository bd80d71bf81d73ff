package optimistic

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// ClaimRows are rows that a claim creates or takes over.
type ClaimRows interface {
	Rows

	// Create creates the row of a new command, unless there is one. If it created the row, r
	// has the owner of the claim, even if the claim is not granted or there is an error.
	Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, granted bool, err error)

	// Take gives the claim the row that was seen, unless the row has changed.
	Take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (r onlyonce.Record, granted bool, err error)

	// AwaitDurable returns once the record that Find has found survives a crash of the server. It reports
	// true if that must be looked for again, because another server may have taken over.
	AwaitDurable(k *record.Key, found *record.Stored) (again bool, err error)

	// Raise makes the fence of a hold on a new command higher than those of deleted
	// records, and writes it into r. It reports false if it is not known which fence the
	// hold has.
	Raise(k *record.Key, r *onlyonce.Record) (known bool, err error)
}

// A Claimed is the outcome of a claim.
type Claimed struct {
	Record  onlyonce.Record
	Created bool           // it created a row, even if there is an error
	Seen    *record.Stored // with ErrContended, the row that it failed to take over, or nil
}

// Claim creates a record, or reads the existing one and takes it over. known means that
// a record probably exists.
func Claim[R ClaimRows](on R, k *record.Key, c *onlyonce.Claim, known bool) (got Claimed, err error) {
	var own, last *record.Stored // own: the claim's own row, once it survives if it is still there
	for n := 0; ; n++ {
		if n > 0 {
			if err := on.Retry(n); err != nil {
				got.Seen = last
				return got, err
			}
		}
		if n > 0 || !known {
			r, granted, err := on.Create(k, c)
			got.Created = got.Created || r.Owner == c.Owner
			if granted || err != nil {
				got.Record = r
				return got, err
			}
		}
		seen, err := on.Find(k)
		switch {
		case err != nil:
			return got, err
		case seen == nil:
			continue
		case seen.HeldBy(&onlyonce.Hold{Owner: c.Owner, Fence: seen.Fence}):
			// A call whose response was lost created the row, and may have been slow.
			got.Created = true
			sure, err := raise(on, k, seen, own)
			if sure || err != nil {
				got.Record = seen.Record
				return got, err
			}
			own = seen
			continue
		case seen.StandsAgainst(c):
			got.Record = seen.Record
			return got, nil
		}
		r, granted, err := on.Take(k, c, seen)
		if granted || err != nil {
			got.Record = r
			return got, err
		}
		last = seen
	}
}

// raise raises the fence of a claim's own row. It reports false if the row must be looked for
// again. own is the row as it was found before.
func raise[R ClaimRows](on R, k *record.Key, seen, own *record.Stored) (sure bool, err error) {
	if !seen.Outlasted(own) {
		if again, err := on.AwaitDurable(k, seen); again || err != nil {
			return false, err
		}
	}
	return on.Raise(k, &seen.Record)
}
