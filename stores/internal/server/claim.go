package server

import (
	"database/sql/driver"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// find returns the record of k; it is nil if there is none. One that has
// expired is there, for its fence.
func (l Session) find(k *record.Key) (found *record.Stored, err error) {
	err = l.Query("lookup", func(v []driver.Value) error {
		r := l.dialect.Decode(v)
		found = &r
		return nil
	}, k.Hash[:])
	if found, err = collided(found, k, err); err != nil || l.Tx != nil {
		return found, err
	}
	if err := l.dialect.Durable(l, k, found); err != nil {
		return nil, err
	}
	return found, nil
}

// findCurrent finds what the snapshot of a transaction does not have, where
// there is such a thing.
func (l Session) findCurrent(k *record.Key) (found *record.Stored, err error) {
	if _, ok := l.dialect.Statements()["lookup current"]; !ok {
		return nil, nil
	}
	err = l.Query("lookup current", func(v []driver.Value) error {
		r := l.dialect.Decode(v)
		found = &r
		return nil
	}, k.Hash[:])
	return collided(found, k, err)
}

func collided(found *record.Stored, k *record.Key, err error) (*record.Stored, error) {
	if err != nil || found == nil {
		return nil, err
	}
	if err := found.Check(k.ID); err != nil {
		return nil, err
	}
	return found, nil
}

func (l Session) lookup(id onlyonce.ID) (onlyonce.Record, error) {
	k := record.KeyOf(id)
	r, err := l.find(&k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	return r.Found()
}

// claim inserts a record, or looks at the one that is there, and takes it over
// as it was seen or not at all.
func (l Session) claim(k *record.Key, c *onlyonce.Claim) (onlyonce.Record, error) {
	var seen *record.Stored
	for n := range maxTurns {
		if n > 0 && !pause(l.Ctx, n) {
			return onlyonce.Record{}, l.Ctx.Err()
		}
		began := time.Now()
		fence, given, err := l.dialect.Claim(l, l.Encode.Claim(k, c))
		if given {
			r, sure, err := l.raiseAboveFloor(k, record.Next(c, nil, fence, fence), time.Since(began))
			if sure || err != nil {
				return r, err
			}
		}
		if err == nil {
			seen, err = l.find(k)
		}
		if err == nil && seen == nil && l.Tx != nil {
			seen, err = l.findCurrent(k)
		}
		switch {
		case err != nil:
			return onlyonce.Record{}, err
		case seen == nil:
			continue
		case seen.HeldBy(&onlyonce.Hold{Owner: c.Owner, Fence: seen.Fence}): // by a call whose answer was lost, and which may have been slow
			r, sure, err := l.raiseAboveFloor(k, seen.Record, record.Slow)
			if sure || err != nil {
				return r, err
			}
			continue
		case seen.Answers(c):
			return seen.Record, nil
		}
		if r, given, err := l.take(k, c, seen); given || err != nil {
			return r, err
		}
	}
	if seen != nil && !seen.Expired {
		return seen.Record, nil
	}
	return onlyonce.Record{}, errContended
}

// raiseAboveFloor makes the fence of a new command's hold higher than the fences of
// deleted records, unless the claim was too quick for a purge to come between. It
// reports false if the record has changed since.
func (l Session) raiseAboveFloor(k *record.Key, r onlyonce.Record, took time.Duration) (_ onlyonce.Record, sure bool, err error) {
	if took < record.Slow {
		return r, true, nil
	}
	if l.Tx == nil { // in a transaction, the floor may be that of an old snapshot
		floor, err := l.Number("floor")
		if err != nil || r.Fence > floor {
			return r, err == nil, err
		}
	}
	fence, raised, err := l.dialect.Give(l, "raise", HoldArgs{Hash: k.Hash[:], Owner: []byte(r.Owner), Fence: r.Fence}.List())
	if raised {
		r.Fence = fence
	}
	return r, err == nil && (raised || l.Tx != nil), err
}

// take gives the claim the record that was seen, unless that has changed.
func (l Session) take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (onlyonce.Record, bool, error) {
	args, err := l.Encode.Take(k, c, seen)
	if err != nil {
		return onlyonce.Record{}, false, err
	}
	fence, given, err := l.dialect.Give(l, "take", args.List())
	if err != nil || !given {
		return onlyonce.Record{}, false, err
	}
	return record.Next(c, seen, fence, fence), true, nil
}
