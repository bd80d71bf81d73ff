package server

import (
	"cmp"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// find returns the record of k, or nil if there is none. It returns a record that has
// expired, too, for its fence.
func (l Session) find(k *record.Key) (*record.Stored, error) {
	if l.Tx != nil {
		return l.read(k)
	}
	return FindDurable(func() (*record.Stored, error) { return l.read(k) },
		func(look Look) (bool, error) { return l.dialect.Durable(l, k, look) })
}

// FindDurable reads a record until it is durable on the server that has it.
func FindDurable(read func() (*record.Stored, error), durable func(Look) (again bool, err error)) (*record.Stored, error) {
	var look Look
	for n := 1; ; n++ {
		var err error
		if look.Found, err = read(); err != nil {
			return nil, err
		}
		again, err := durable(look)
		switch {
		case err != nil:
			return nil, err
		case !again:
			return look.Found, nil
		case n == maxTries:
			return nil, errServers
		}
		look.Before = look.Found
	}
}

var errServers = fmt.Errorf("%w: the record was read from another server than the one that committed, every time: connect to the primary only, and stop the former one", onlyonce.ErrUnavailable)

// read reads the record of k, which may not be durable.
func (l Session) read(k *record.Key) (found *record.Stored, err error) {
	err = l.Query("lookup", func(v []driver.Value) error {
		r := l.dialect.Decode(v)
		found = &r
		return nil
	}, k.Hash[:])
	return collided(found, k, err)
}

// findCurrent finds a record that the snapshot of a transaction does not have, on servers
// that need a statement of its own for it.
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

// claim claims a command.
func (l Session) claim(k *record.Key, c *onlyonce.Claim) (onlyonce.Record, error) {
	r, last, err := optimistic.Claim(rows{l}, k, c, false)
	if errors.Is(err, optimistic.ErrContended) && last != nil && !last.Expired {
		return last.Record, nil
	}
	return r, err
}

// rows are the rows of a session.
type rows struct{ Session }

// maxTries bounds how often a call looks again because others came first.
const maxTries = 20

// Try pauses before each repeat.
func (l rows) Try(n int) error {
	switch {
	case n == 0:
		return nil
	case n < maxTries && pause(l.Ctx, n):
		return nil
	}
	return cmp.Or(l.Ctx.Err(), optimistic.ErrContended)
}

// Create inserts the row.
func (l rows) Create(k *record.Key, c *onlyonce.Claim) (r onlyonce.Record, granted bool, err error) {
	began := time.Now()
	fence, granted, err := l.dialect.Claim(l.Session, l.Encode.Claim(k, c))
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

// Survives does not wait in a transaction, whose own commit comes later.
func (l rows) Survives(_ *record.Key, found *record.Stored) (again bool, err error) {
	if l.Tx != nil {
		return false, nil
	}
	return l.dialect.Flushed(l.Session, found.Server)
}

// Made returns an error that does not say that nothing happened, except in a transaction,
// which rolls the row back.
func (l rows) Made(err error) error {
	if l.Tx == nil && errors.Is(err, onlyonce.ErrUnavailable) {
		err = fmt.Errorf("%w: %v", errMade, err)
	}
	return err
}

var errMade = errors.New("the claim may have been written although it failed")

// Raise raises the fence of a claim that may have been slow.
func (l rows) Raise(k *record.Key, r *onlyonce.Record) (known bool, err error) {
	*r, known, err = l.raiseAboveFloor(k, *r, record.Slow)
	return known, err
}

// Take takes the row over.
func (l rows) Take(k *record.Key, c *onlyonce.Claim, seen *record.Stored) (onlyonce.Record, bool, error) {
	args, err := l.Encode.Take(k, c, seen)
	if err != nil {
		return onlyonce.Record{}, false, err
	}
	fence, granted, err := l.dialect.Grant(l.Session, "take", args.List())
	if err != nil || !granted {
		return onlyonce.Record{}, false, err
	}
	return record.Next(c, seen, fence, fence), true, nil
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
	fence, raised, err := l.dialect.Grant(l, "raise", HoldArgs{Hash: k.Hash[:], Owner: []byte(r.Owner), Fence: r.Fence}.List())
	if raised {
		r.Fence = fence
	}
	return r, err == nil && (raised || l.Tx != nil), err
}
