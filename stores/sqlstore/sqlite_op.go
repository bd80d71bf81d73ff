package sqlstore

import (
	"database/sql/driver"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// An op is what a caller wants written. Done again, it does nothing more.
type op interface {
	// alone does the op in a single statement, if it can. Otherwise it has
	// done nothing.
	alone(session) (done bool, err error)

	// apply does the op in a transaction that has the write lock.
	apply(session, *clock) error
}

// A clock is the store's, read once for a transaction that has the write lock.
type clock struct {
	now   int64 // microseconds
	last  int64 // the newest record's created_at
	floor int64 // the highest fence of a deleted record
}

func readClock(s session) (*clock, error) {
	c := new(clock)
	err := s.query("clock", nil, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		c.now, c.last, c.floor = r.Int("now"), r.Int("last"), r.Int("floor")
		return r.Err
	})
	if c.now == 0 && err == nil {
		err = errNoFence
	}
	return c, err
}

// refresh reads the clock again, after others wrote in the transaction.
func (c *clock) refresh(s session) error {
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

// microsCeil returns the microseconds after which a duration that begins now has
// passed: the clock counts milliseconds, and one of them is under way.
func microsCeil(d time.Duration) int64 { return d.Microseconds() + 1000 }

// find returns the record of k; it is nil if there is none. One that has
// expired is there, for its fence.
func find(s session, k *key) (found *stored, err error) {
	err = s.query("lookup", args(k.hash[:]), func(v []driver.Value) error {
		r := decode(v)
		found = &r
		return nil
	})
	if err != nil || found == nil {
		return nil, err
	}
	if err := found.Check(k.id); err != nil {
		return nil, err
	}
	return found, nil
}

// known says whether there is a record of k, which costs less than to find it.
func known(s session, k *key) (there bool, err error) {
	err = s.query("known", args(k.hash[:]), func([]driver.Value) error {
		there = true
		return nil
	})
	return there, err
}

// findIfKnown is find for when there is probably no record.
func findIfKnown(s session, k *key) (*stored, error) {
	there, err := known(s, k)
	if !there || err != nil {
		return nil, err
	}
	return find(s, k)
}

// remove deletes a record and keeps its fence.
func remove(s session, now *clock, k *key, fence int64) error {
	if err := keepFence(s, now, fence); err != nil {
		return err
	}
	_, err := s.exec("delete", args(k.hash[:], fence))
	return err
}

// keepFence makes every fence to come higher than one that no record has.
func keepFence(s session, now *clock, fence int64) error {
	_, err := s.exec("floor", args(fence))
	now.floor = max(now.floor, fence)
	return err
}

// A claimOp asks for the right to run a command.
type claimOp struct {
	key    key
	claim  onlyonce.Claim
	record onlyonce.Record     // as it stands now
	args   []driver.NamedValue // made before the op is queued
}

func newClaimOp(c onlyonce.Claim) *claimOp {
	o := &claimOp{key: keyOf(c.ID), claim: c}
	o.args = args(o.key.hash[:], c.ID.Tenant, c.ID.Operation, c.ID.Key, blob(c.Fingerprint), []byte(c.Owner), record.LapsedKeep(&o.claim), nil, nil, nil)
	return o
}

func (o *claimOp) alone(s session) (bool, error) {
	c, given := &o.claim, false
	o.args[7].Value = microsCeil(c.Lease)
	err := s.query("claim", o.args[:8], func(v []driver.Value) error {
		r := record.Reader{Values: v}
		o.given(r.Int("created_at"), r.Int("fence"))
		given = true
		return r.Err
	})
	if given || err != nil {
		return given, err
	}
	r, err := find(s, &o.key)
	if err != nil || r == nil || r.Expired || c.Takes(r.Record) {
		return false, err
	}
	o.record = r.Record
	return true, nil
}

func (o *claimOp) apply(s session, now *clock) error {
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
		return o.take(s, now)
	}
	o.record = r.Record
	return nil
}

// insert makes a new record, unless there is one.
func (o *claimOp) insert(s session, now *clock) (bool, error) {
	at := now.create()
	fence := now.newFence(at)
	o.args[7].Value, o.args[8].Value, o.args[9].Value = at, fence, now.now+microsCeil(o.claim.Lease)
	n, err := s.exec("insert", o.args)
	if n == 0 || err != nil {
		return false, err
	}
	o.given(at, fence)
	return true, nil
}

func (o *claimOp) given(createdAt, fence int64) {
	o.record = record.Next(&o.claim, nil, createdAt, fence)
}

// take gives the claim a record that is there.
func (o *claimOp) take(s session, now *clock) error {
	r := &o.record
	steps, err := record.EncodeSteps(r.Steps)
	if err != nil {
		return err
	}
	_, err = s.exec("take", args([]byte(r.Owner), int64(r.Attempt), r.Fence, now.now+microsCeil(o.claim.Lease), record.LapsedKeep(&o.claim), blob(r.Fingerprint), steps, o.key.hash[:]))
	return err
}
