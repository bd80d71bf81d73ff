package server

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/optimistic"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// find returns the record of k, or nil if there is none. It returns a record that has
// expired, too, for its fence.
func (l Runner) find(k *record.Key) (*record.Stored, error) {
	if l.Tx != nil {
		return l.read(k)
	}
	return FindDurable(func() (*record.Stored, error) { return l.read(k) },
		func(look Look) (bool, error) { return l.dialect.Durable(l, k, look) })
}

// maxReads bounds how often a record is read that is not durable yet.
const maxReads = 20

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
		case n == maxReads:
			return nil, errServers
		}
		look.Before = look.Found
	}
}

var errServers = fmt.Errorf("%w: every time, the record was read from a server other than the one that committed: connect to the primary only, and stop the former one", onlyonce.ErrUnavailable)

// read reads the record of k, which may not be durable.
func (l Runner) read(k *record.Key) (found *record.Stored, err error) {
	err = l.Query("lookup", func(v []driver.Value) error {
		r := l.dialect.Decode(v)
		found = &r
		return nil
	}, k.Hash[:])
	return collided(found, k, err)
}

// findCurrent finds a record that the snapshot of a transaction does not have, on servers
// that need a statement of its own for it.
func (l Runner) findCurrent(k *record.Key) (found *record.Stored, err error) {
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

func (l Runner) lookup(id onlyonce.ID) (onlyonce.Record, error) {
	k := record.KeyOf(id)
	r, err := l.find(&k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	return r.Found()
}

// claim claims a command. created says that an earlier try may have created its row. If the
// claim fails after that, the error does not say that nothing happened, except in a
// transaction, which rolls the row back.
func (l Runner) claim(k *record.Key, c *onlyonce.Claim, created bool) (onlyonce.Record, error) {
	got, err := optimistic.Claim(rows{l}, k, c, false)
	switch {
	case err == nil:
	case errors.Is(err, optimistic.ErrContended) && got.Seen != nil && !got.Seen.Expired:
		return got.Seen.Record, nil
	case errors.Is(err, onlyonce.ErrUnavailable) && (created || got.Created) && l.Tx == nil:
		err = fmt.Errorf("%w: %v", errCreated, err)
	}
	return got.Record, err
}

var errCreated = errors.New("the claim may have been written although it failed")
