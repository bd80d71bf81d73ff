package optimistic

import (
	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// ClaimRows are rows on which a claim takes its steps.
type ClaimRows interface {
	Rows

	// Create makes the row of a new command, unless there is one. If it made the row, r has
	// the owner of the claim, even if the claim is not granted or there is an error.
	Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, granted bool, err error)

	// Survives returns once what Find has found survives a crash of the server. It reports
	// true if that must be looked for again, because another server may have taken over.
	Survives(k *record.Key, found *record.Stored) (again bool, err error)

	// Raise makes the fence of a hold on a new command higher than those of deleted
	// records, and writes it into r. It reports false if it is not known which fence the
	// hold has.
	Raise(k *record.Key, r *onlyonce.Record) (known bool, err error)

	// Take gives the claim the row that was seen, unless the row has changed.
	Take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (r onlyonce.Record, granted bool, err error)

	// Made returns the error of a claim whose row was made.
	Made(err error) error
}

// Claim creates a record, or reads the existing one and takes it over. known means that
// a record probably exists. With ErrContended, Claim returns the row that it read last.
func Claim[R ClaimRows](on R, k *record.Key, c *onlyonce.Claim, known bool) (r onlyonce.Record, last *record.Stored, err error) {
	made := false
	defer func() {
		if err != nil && made {
			err = on.Made(err)
		}
	}()
	var own *record.Stored // the claim's own row, once it survives if it is still there
	for n := 0; ; n++ {
		if err := on.Try(n); err != nil {
			return onlyonce.Record{}, last, err
		}
		if !known || n > 0 {
			r, granted, err := on.Create(k, c)
			if made = made || r.Owner == c.Owner; granted || err != nil {
				return r, nil, err
			}
		}
		seen, err := on.Find(k)
		switch {
		case err != nil:
			return onlyonce.Record{}, nil, err
		case seen == nil:
			continue
		case seen.HeldBy(&onlyonce.Hold{Owner: c.Owner, Fence: seen.Fence}):
			// A call whose response was lost created the row, and may have been slow.
			made = true
			if !seen.Outlasted(own) {
				if again, err := on.Survives(k, seen); err != nil {
					return onlyonce.Record{}, nil, err
				} else if own = seen; again {
					continue
				}
			}
			if sure, err := on.Raise(k, &seen.Record); sure || err != nil {
				return seen.Record, nil, err
			}
			continue
		case seen.StandsAgainst(c):
			return seen.Record, nil, nil
		}
		if r, granted, err := on.Take(k, c, seen); granted || err != nil {
			return r, nil, err
		}
		last = seen
	}
}
