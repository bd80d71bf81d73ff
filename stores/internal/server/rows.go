package server

import (
	"cmp"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// rows are the rows that a Runner reaches.
type rows struct{ Runner }

// How often a call tries because others came first. In a transaction, most never succeed: the
// row that is in the way is not in its snapshot.
const (
	maxTries     = 200
	maxTriesInTx = 20
)

// Retry pauses before each retry.
func (l rows) Retry(n int) error {
	tries := maxTries
	if l.Tx != nil {
		tries = maxTriesInTx
	}
	if n < tries && pause(l.Ctx, min(n, maxTriesInTx)) {
		return nil
	}
	return cmp.Or(l.Ctx.Err(), optimistic.ErrContended)
}

// Create inserts the row.
func (l rows) Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, granted bool, err error) {
	began := time.Now()
	fence, granted, err := l.dialect.Claim(l.Runner, l.Encode.Claim(k, c))
	if !granted || err != nil {
		return onlyonce.Record{}, false, err
	}
	return l.raiseAboveFloor(k, record.Next(c, nil, fence, fence), time.Since(began))
}

// Find also finds a row that the snapshot of a transaction does not have.
func (l rows) Find(k *record.Key) (*record.Stored, error) {
	seen, err := l.find(k)
	if seen == nil && err == nil && l.Tx != nil {
		seen, err = l.findCurrent(k)
	}
	return seen, err
}

// Take takes the row over.
func (l rows) Take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (onlyonce.Record, bool, error) {
	args, err := l.Encode.Take(k, c, seen)
	if err != nil {
		return onlyonce.Record{}, false, err
	}
	fence, granted, err := l.dialect.Grant(l.Runner, "take", args.List())
	if err != nil || !granted {
		return onlyonce.Record{}, false, err
	}
	return record.Next(c, seen, fence, fence), true, nil
}

// AwaitDurable does not wait in a transaction, whose own commit comes later.
func (l rows) AwaitDurable(_ *record.Key, found *record.Stored) (again bool, err error) {
	if l.Tx != nil {
		return false, nil
	}
	return l.dialect.Flushed(l.Runner, found.Server)
}

// Raise raises the fence of a claim that may have been slow.
func (l rows) Raise(k *record.Key, r *onlyonce.Record) (known bool, err error) {
	*r, known, err = l.raiseAboveFloor(k, *r, record.Slow)
	return known, err
}

// raiseAboveFloor makes the fence of a new command's hold higher than the fences of
// deleted records, unless the claim was too quick for a purge to come between. It
// reports false if the record has changed since.
func (l Runner) raiseAboveFloor(k *record.Key, r onlyonce.Record, took time.Duration) (_ onlyonce.Record, sure bool, err error) {
	if took < record.Slow {
		return r, true, nil
	}
	if l.Tx == nil { // in a transaction, the floor may be that of an old snapshot
		floor, err := l.Number("floor")
		if err != nil || r.Fence > floor {
			return r, err == nil, err
		}
	}
	fence, raised, err := l.dialect.Grant(l, "raise", HoldArgs{Hash: k.Hash[:], Owner: []byte(r.Owner), Fence: r.Fence}.List())
	if raised {
		r.Fence = fence
	}
	return r, err == nil && (raised || l.Tx != nil), err
}
