package memstore

import (
	"bytes"
	"maps"
	"slices"
	"time"
	"unsafe"

	"github.com/onlyonce-go/onlyonce"
)

// An entry is a record in its shard. The contents of its slices and maps never change once
// they are set, so that returned records can share them.
type entry struct {
	record onlyonce.Record // without LeaseLeft and KeepLeft
	until  moment          // when the lease ends or the settled record expires
	keep   time.Duration   // the claim's Keep: how long the record stays once its lease has lapsed; 0: until someone resolves it
	ended  moment          // when the record was settled
	header []byte          // Result.Header, packed, until the record is first returned
	place  int             // position in the shard's agenda, counted from 1; 0: it is not in the agenda
	at     moment          // the time by which the agenda is ordered
	size   int64           // as counted in Store.bytes
	hash   uint64          // of the ID
	next   *entry          // another entry with the same hash
	room   [32]byte        // space for a fingerprint
}

// The memory that entries, maps, names and values use in addition to their own bytes,
// including their share of the shard's map.
const (
	entryCost = int(unsafe.Sizeof(entry{})) + 128
	mapCost   = 384
	nameCost  = 48
	valueCost = 24
)

func (e *entry) settled() bool { return e.record.State != onlyonce.StateProcessing }

// due returns when the record expires or, if that is earlier, its result.
func (e *entry) due() moment { return min(e.expires(), e.resultExpires()) }

// resultExpires returns when the result expires although the record stays.
func (e *entry) resultExpires() moment {
	if e.settled() && e.record.Result.Keep > 0 {
		return e.ended.after(e.record.Result.Keep)
	}
	return never
}

// expires returns when the record expires.
func (e *entry) expires() moment {
	switch {
	case e.settled():
		return e.until
	case e.keep > 0:
		return e.until.after(e.keep)
	}
	return never
}

func (e *entry) expired(now moment) bool { return e.expires() <= now }

// remembered reports whether the result has expired.
func (e *entry) remembered(now moment) bool { return e.resultExpires() <= now }

// unresolved reports whether the outcome is unknown, and for how long it has been.
func (e *entry) unresolved(now moment) (since time.Duration, open bool) {
	switch {
	case e.record.State == onlyonce.StateUnknown:
		return time.Duration(now - e.ended), true
	case !e.settled() && e.until <= now:
		return time.Duration(now - e.until), true
	}
	return 0, false
}

// stands returns the record in its state at now, without a packed header.
func (e *entry) stands(now moment) onlyonce.Record {
	r := e.record
	switch left := time.Duration(e.until - now); {
	case !e.settled():
		r.LeaseLeft = left
	case e.until != never:
		r.KeepLeft = left
	}
	if e.remembered(now) {
		return r.Remembered()
	}
	if until := e.resultExpires(); until != never {
		r.Result.Keep = time.Duration(until - now)
	}
	return r
}

// replace makes r the entry's record, except for its ID and CreatedAt, which never change
// and which a list reads without the shard's lock.
func (e *entry) replace(r onlyonce.Record) {
	to := &e.record
	to.State, to.Fingerprint, to.Summary, to.Owner, to.Attempt, to.Fence = r.State, r.Fingerprint, r.Summary, r.Owner, r.Attempt, r.Fence
	to.Result, to.Error, to.Final, to.Corrupt, to.Steps = r.Result, r.Error, r.Final, r.Corrupt, r.Steps
	to.SettledAt, to.LeaseLeft, to.KeepLeft = r.SettledAt, r.LeaseLeft, r.KeepLeft
}

// begin makes the entry's record that of the attempt that c begins.
func (e *entry) begin(c *onlyonce.Claim, fence int64, now moment) {
	was := &e.record
	if was.Attempt == 0 {
		was = nil
	}
	r := c.Next(was)
	r.Fence = fence
	if e.record.Fingerprint == nil && c.Fingerprint != nil {
		r.Fingerprint = slices.Clip(append(e.room[:0], c.Fingerprint...))
	}
	e.replace(r)
	e.header = nil
	e.until, e.keep = now.after(c.Lease), max(c.Keep, 0)
}

// end settles the entry's record.
func (e *entry) end(s onlyonce.Settlement, now moment, at time.Time) {
	e.replace(e.record.Settled(s, at))
	e.record.Result.Header = nil
	e.record.Result.Body, e.header = pack(s.Result.Body, s.Result.Header)
	e.until, e.ended = never, now
	if s.Keep > 0 {
		e.until = now.after(s.Keep)
	}
}

// forget deletes the result.
func (e *entry) forget() {
	e.replace(e.record.Remembered())
	e.header = nil
}

// addSteps adds steps in a new map, because returned records share the old one.
func (e *entry) addSteps(steps map[string][]byte) {
	if len(steps) == 0 {
		return
	}
	all := make(map[string][]byte, len(e.record.Steps)+len(steps))
	maps.Copy(all, e.record.Steps)
	for name, b := range steps {
		all[name] = bytes.Clone(b)
	}
	e.record.Steps = all
}

// weigh returns the approximate memory of the entry, in bytes.
func (e *entry) weigh() int64 {
	r := &e.record
	n := entryCost + len(r.ID.Tenant) + len(r.ID.Operation) + len(r.ID.Key) + len(r.Summary) + len(r.Owner) +
		len(r.Result.Body) + len(r.Result.Ref) + len(r.Result.Traceparent) + len(r.Error) + len(e.header)
	if len(r.Fingerprint) > len(e.room) {
		n += len(r.Fingerprint)
	}
	if r.Result.Header != nil {
		n += mapCost
	}
	for name, values := range r.Result.Header {
		n += nameCost + len(name)
		for _, v := range values {
			n += valueCost + len(v)
		}
	}
	if r.Steps != nil {
		n += mapCost
	}
	for name, b := range r.Steps {
		n += nameCost + valueCost + len(name) + len(b)
	}
	return int64(n)
}
