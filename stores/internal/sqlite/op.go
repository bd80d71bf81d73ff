package sqlite

import (
	"database/sql/driver"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// An op is a change that a caller requests. Applying it twice has no further effect.
type op interface {
	// trySingleStatement does the op in a single statement, if it can. Otherwise it does nothing.
	trySingleStatement(engine.Runner) (done bool, err error)

	// apply does the op in a transaction that has the write lock.
	apply(engine.Runner, *clock) error
}

// A clock is the store's clock, read once for a transaction that has the write lock.
type clock struct {
	now   int64 // microseconds
	last  int64 // the newest record's created_at
	floor int64 // the highest fence of a deleted record
}

func readClock(s engine.Runner) (*clock, error) {
	c := new(clock)
	err := s.Query("clock", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		c.now, c.last, c.floor = r.Int("now"), r.Int("last"), r.Int("floor")
		return r.Err
	})
	if c.now == 0 && err == nil {
		err = engine.ErrNoFence
	}
	return c, err
}

// startClock reads the clock in a transaction of the writer, and first records a fence that
// could not be recorded before.
func (s *Store) startClock(d *driverRunner) (*clock, error) {
	if unkept := s.unkept.Load(); unkept > 0 {
		if _, err := d.Exec("floor", (&floorArgs{unkept}).list()); err != nil {
			return nil, err
		}
	}
	return readClock(d)
}

// refresh reads the clock again, after others wrote in the transaction.
func (c *clock) refresh(s engine.Runner) error {
	again, err := readClock(s)
	if err != nil {
		return err
	}
	again.last, again.floor = max(again.last, c.last), max(again.floor, c.floor)
	*c = *again
	return nil
}

// create returns the created_at of a new record.
func (c *clock) create() int64 {
	c.last = max(c.now, c.last+1)
	return c.last
}

// fence returns the fence of a hold that comes after previous.
func (c *clock) fence(previous int64) int64 { return max(c.now, previous+1, c.floor+1) }

// newFence returns the fence of a new record's first hold.
func (c *clock) newFence(createdAt int64) int64 { return max(createdAt, c.floor+1) }

// find returns the record of k, or nil if there is none. It returns a record that has
// expired, too, for its fence.
func find(s engine.Runner, k *record.Key) (found *record.Stored, err error) {
	err = s.Query("lookup", (&keyArgs{k.Hash[:]}).list(), func(v []driver.Value) error {
		r := record.Decode(v)
		found = &r
		return nil
	})
	if err != nil || found == nil {
		return nil, err
	}
	if err := found.Check(k.ID); err != nil {
		return nil, err
	}
	return found, nil
}

// known reports whether there is a record of k, which costs less than find.
func known(s engine.Runner, k *record.Key) (there bool, err error) {
	err = s.Query("known", (&keyArgs{k.Hash[:]}).list(), func([]driver.Value) error {
		there = true
		return nil
	})
	return there, err
}

// findIfKnown is find for when there is probably no record.
func findIfKnown(s engine.Runner, k *record.Key) (*record.Stored, error) {
	there, err := known(s, k)
	if !there || err != nil {
		return nil, err
	}
	return find(s, k)
}

// remove deletes a record and keeps its fence.
func remove(s engine.Runner, now *clock, k *record.Key, fence int64) error {
	if err := keepFence(s, now, fence); err != nil {
		return err
	}
	_, err := s.Exec("delete", (&keyArgs{k.Hash[:]}).delete(fence))
	return err
}

// keepFence makes every later fence higher than fence, which no record has now.
func keepFence(s engine.Runner, now *clock, fence int64) error {
	_, err := s.Exec("floor", (&floorArgs{fence}).list())
	now.floor = max(now.floor, fence)
	return err
}

// A claimOp requests the right to run a command.
type claimOp struct {
	key    record.Key
	claim  onlyonce.Claim
	record onlyonce.Record // the record after the claim
	args   claimList
}

func newClaimOp(c onlyonce.Claim) *claimOp {
	o := &claimOp{key: record.KeyOf(c.ID), claim: c}
	args := claimArgs{
		id: o.key.Hash[:], tenant: c.ID.Tenant, operation: c.ID.Operation, key: c.ID.Key,
		fingerprint: record.NullBytes(record.EncodePrint(c.Fingerprint, c.Summary)), owner: []byte(c.Owner), lapsedKeep: record.LapsedKeep(&o.claim),
	}
	o.args = args.list()
	return o
}

func (o *claimOp) trySingleStatement(s engine.Runner) (bool, error) {
	c, granted := &o.claim, false
	err := s.Query("claim", o.args.claim(record.MicrosCeil(c.Lease)), func(v []driver.Value) error {
		r := record.Reader{Values: v}
		o.grant(r.Int("created_at"), r.Int("fence"))
		granted = true
		return r.Err
	})
	if granted || err != nil {
		return granted, err
	}
	r, err := find(s, &o.key)
	if err != nil || !r.StandsAgainst(c) {
		return false, err
	}
	o.record = r.Record
	return true, nil
}

func (o *claimOp) apply(s engine.Runner, now *clock) error {
	ok, err := o.insert(s, now)
	if ok || err != nil {
		return err
	}
	r, err := find(s, &o.key)
	switch {
	case err != nil:
		return err
	case r == nil:
		return onlyonce.ErrNotFound
	case r.Expired:
		if err := remove(s, now, &o.key, r.Fence); err != nil {
			return err
		}
		_, err := o.insert(s, now)
		return err
	case o.claim.Takes(r.Record):
		o.record = record.Next(&o.claim, r, 0, now.fence(r.Fence))
		return o.takeOver(s, now)
	}
	o.record = r.Record
	return nil
}

// insert makes a new record, unless there is one.
func (o *claimOp) insert(s engine.Runner, now *clock) (bool, error) {
	at := now.create()
	fence := now.newFence(at)
	n, err := s.Exec("insert", o.args.insert(at, fence, now.now+record.MicrosCeil(o.claim.Lease)))
	if n == 0 || err != nil {
		return false, err
	}
	o.grant(at, fence)
	return true, nil
}

func (o *claimOp) grant(createdAt, fence int64) {
	o.record = record.Next(&o.claim, nil, createdAt, fence)
}

// takeOver writes the claim's hold into an existing record.
func (o *claimOp) takeOver(s engine.Runner, now *clock) error {
	r := &o.record
	steps, err := record.EncodeSteps(r.Steps)
	if err != nil {
		return err
	}
	args := takeArgs{
		owner: []byte(r.Owner), attempt: int64(r.Attempt), fence: r.Fence, leaseUntil: now.now + record.MicrosCeil(o.claim.Lease),
		lapsedKeep: record.LapsedKeep(&o.claim), fingerprint: record.NullBytes(record.EncodePrint(r.Fingerprint, r.Summary)), steps: steps, id: o.key.Hash[:],
	}
	_, err = s.Exec("take", args.list())
	return err
}
