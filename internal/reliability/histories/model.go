//go:build linux

package histories

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A record is the state of the model: one command's record, and its business
// rows. The model has no clock. It knows that the store read its clock for a call
// between the call and its return, and so for every lease and keep the interval
// in which it ends. A call may take effect some time after the clock was read.
type record struct {
	there       bool
	state       onlyonce.State
	owner       string
	nobodys     bool // it was resolved: its owner is not known, and no claim's
	fingerprint int
	attempt     int
	fence       int64 // 0: not known, but at least lowest
	lowest      int64
	issued      int64 // when the claim that has the fence had returned: until then, a lower one may be seen
	result      string
	text        string
	final       bool
	steps       string
	created     int64 // 0: not known

	leaseFrom, leaseTo int64 // the lease ends between them
	ends               bool  // the settled record expires
	keepFrom, keepTo   int64 // between them

	lateFrom, lateTo int64 // between them, a record that is changed just before it expires may be seen as expired

	top  int64  // the highest fence that was issued
	rows string // sorted, each followed by a comma
}

// briefest is how long the stores on servers keep a settled record at least.
const briefest = 100 * time.Millisecond

const forever = math.MaxInt64

func plus(t int64, d time.Duration) int64 {
	if t > forever-int64(d) {
		return forever
	}
	return t + int64(d)
}

// step returns what the record can be after the event, or nothing if the event
// can't happen to it.
func (s record) step(e *Event) []record {
	if e.Verdict == Nothing || e.Kind == Purge {
		return []record{s}
	}
	var after []record
	for _, form := range s.forms(e) {
		before := len(after)
		switch e.Kind {
		case Claim:
			after = append(after, form.claim(e)...)
		case Renew:
			after = append(after, form.renew(e)...)
		case Settle:
			after = append(after, form.settle(e)...)
		case RunTx:
			after = append(after, form.runTx(e)...)
		case SettleTx:
			after = append(after, form.settleTx(e)...)
		case Lookup:
			after = append(after, form.lookup(e)...)
		case Resolve, Remove:
			after = append(after, form.resolve(e)...)
		case Rows:
			if strings.Join(append(slices.Sorted(slices.Values(e.Rows)), ""), ",") == form.rows {
				after = append(after, form)
			}
		}
		if e.Apart && form != s && slices.Contains(after[before:], form) {
			after = append(after, s) // another process may still see it
		}
	}
	return after
}

// forms returns what the record may be at the instant of the event: when it is
// settled, it may have expired.
func (s record) forms(e *Event) []record {
	if !s.there || s.state == onlyonce.StateProcessing || !s.ends {
		return []record{s}
	}
	var all []record
	if e.Start <= plus(s.keepTo, e.Slack+e.Lag) {
		all = append(all, s)
	}
	if e.End >= s.keepFrom-int64(e.Slack) {
		all = append(all, s.removed())
	}
	return all
}

// removed is the record once it is not there any more.
func (s record) removed() record {
	return record{top: s.highest(), rows: s.rows}
}

// highest returns the highest fence that is known to have been issued.
func (s record) highest() int64 { return max(s.top, s.fence, s.lowest) }

// mayHaveLapsed and mayBeAlive say what the lease can be at the event's instant.
func (s record) mayHaveLapsed(e *Event) bool { return e.End >= s.leaseFrom-int64(e.Slack) }
func (s record) mayBeAlive(e *Event) bool    { return e.Start <= plus(s.leaseTo, e.Slack+e.Lag) }

// claim is what a claim does to a record.
func (s record) claim(e *Event) []record {
	if e.Record != nil && e.Record.Busy {
		return s.busy(e)
	}
	var after []record
	taken, rejected := s.claimable(e)
	if e.takenBack {
		after = append(after, s)
	}
	if taken {
		next := s.claimedBy(e)
		if e.Verdict == Doubt {
			after = append(after, next)
		} else if e.Record != nil && e.Record.Owner == e.Owner {
			after = append(after, next.learned(e)...)
		}
	}
	if rejected {
		after = append(after, s.rejects(e)...)
	}
	if s.there && s.state == onlyonce.StateProcessing && s.heldBy(e.Owner) { // a higher fence may be issued to a claim that is repeated
		raised := s
		raised.top = s.highest()
		raised.fence, raised.lowest, raised.issued = 0, raised.top+1, e.End
		after = append(after, raised.rejects(e)...)
	}
	return after
}

// rejects is the record as a claim that does not take it leaves it.
func (s record) rejects(e *Event) []record {
	if e.Verdict == Doubt {
		return []record{s}
	}
	return s.learned(e)
}

// claimable says whether the event's claim can take the record, and whether it
// can be rejected.
func (s record) claimable(e *Event) (taken, rejected bool) {
	switch {
	case !s.there:
		return true, false
	case s.heldBy(e.Owner) || e.Fingerprint != 0 && s.fingerprint != 0 && e.Fingerprint != s.fingerprint:
		return false, true
	case s.state == onlyonce.StateProcessing:
		lapsed := e.TakeUnknown && s.mayHaveLapsed(e)
		return lapsed, !e.TakeUnknown || s.mayBeAlive(e)
	case s.state == onlyonce.StateUnknown:
		return e.TakeUnknown, !e.TakeUnknown
	case s.state == onlyonce.StateFailed:
		taken = e.RetryFailed && !s.final
		return taken, !taken
	}
	return false, true
}

func (s record) heldBy(owner string) bool { return !s.nobodys && s.owner == owner }

// claimedBy is the record as the event's claim makes it.
func (s record) claimedBy(e *Event) record {
	next := s
	if !s.there {
		next = s.removed()
	}
	next.changesLate(e)
	next.there, next.state, next.owner, next.nobodys = true, onlyonce.StateProcessing, e.Owner, false
	next.attempt++
	if next.fingerprint == 0 {
		next.fingerprint = e.Fingerprint
	}
	next.top = s.highest()
	next.fence, next.lowest, next.issued = 0, next.top+1, e.End
	next.result, next.final, next.ends = "", false, false
	return next.leased(e)
}

// changesLate notes until when others may not see that the record is changed.
func (s *record) changesLate(e *Event) {
	s.lateFrom, s.lateTo = 0, 0
	if s.ends && s.state != onlyonce.StateProcessing {
		s.lateFrom, s.lateTo = s.keepFrom, e.End
	}
}

func (s record) leased(e *Event) record {
	s.leaseFrom, s.leaseTo = plus(e.Start, e.Lease), plus(e.End, e.Lease)
	return s
}

// held returns the record if the event's hold is its, and whether it can be
// another's.
func (s record) held(e *Event) (held []record, other bool) {
	switch {
	case !s.there || !s.heldBy(e.Owner):
		return nil, true
	case s.fence != 0:
		if s.fence != e.Fence {
			return nil, true
		}
		return []record{s}, false
	case e.Fence < s.lowest:
		return nil, true
	}
	other = true
	s.fence = e.Fence
	return []record{s}, other
}

// ifHeld is what a call does to the record if the hold is its.
func (s record) ifHeld(e *Event, then func(s record) (next record, lost bool)) []record {
	var after []record
	held, lost := s.held(e)
	for _, h := range held {
		next, rejected := then(h)
		switch {
		case rejected:
			lost = true
		case e.Verdict == Done || e.Verdict == Doubt || e.Verdict == Own:
			after = append(after, next)
		}
	}
	if lost && (e.Verdict == Lost || e.Verdict == Doubt || e.Verdict == OwnLost) {
		after = append(after, s)
	}
	return after
}

func (s record) renew(e *Event) []record {
	return s.ifHeld(e, func(s record) (record, bool) {
		if s.state != onlyonce.StateProcessing {
			return s, true
		}
		if e.Step != "" {
			s.steps = withStep(s.steps, e.Step)
		}
		return s.leased(e), false
	})
}

func (s record) settle(e *Event) []record {
	return s.ifHeld(e, func(s record) (record, bool) {
		if s.state != onlyonce.StateProcessing {
			return s, false // it was settled before, which is no error
		}
		return s.settled(e), false
	})
}

// settled is the record as the event's settlement makes it.
func (s record) settled(e *Event) record {
	if e.State == "" {
		return s.removed()
	}
	s.state, s.final = e.State, e.Final
	s.issued, s.leaseFrom, s.leaseTo = 0, 0, 0 // what does not matter any more makes no two states of one
	s.result, s.text = e.texts()
	s.ends = e.Keep > 0
	if s.ends {
		s.keepFrom, s.keepTo = plus(e.Start, e.Keep), plus(e.End, max(e.Keep, briefest))
	}
	return s
}

func (s record) lookup(e *Event) []record {
	if (e.Verdict == NotFound) == s.there && !s.seenExpired(e) {
		return nil
	}
	if !s.there || e.Verdict == NotFound {
		return []record{s}
	}
	return s.learned(e)
}

// seenExpired reports whether the call can have seen the record as it was before
// a resolution or a take-over that has yet to commit, and expired.
func (s record) seenExpired(e *Event) bool {
	return e.Verdict == NotFound && e.Start <= plus(s.lateTo, e.Lag) && e.End >= s.lateFrom-int64(e.Slack)
}

// learned is the record with what a call saw of it, if that can be.
func (s record) learned(e *Event) []record {
	r := e.Record
	if r == nil || !s.there || r.Busy || r.Corrupt || r.State != s.state || r.Fingerprint != s.fingerprint || r.Attempt != s.attempt ||
		r.Result != s.result || r.Error != s.text || r.Final != s.final || r.Steps != s.steps {
		return nil
	}
	if !s.nobodys && r.Owner != s.owner {
		return nil
	}
	if s.created == 0 {
		s.created = r.Created
	}
	if s.created != r.Created || !s.timed(e) || !s.fenced(e) {
		return nil
	}
	s.top = max(s.top, s.fence)
	return []record{s}
}

// fenced checks the fence that a call saw. A store may raise a fence that it has
// not returned to the claim yet.
func (s *record) fenced(e *Event) bool {
	seen := e.Record.Fence
	if seen < s.lowest {
		return false
	}
	switch {
	case s.state == onlyonce.StateProcessing && e.Owner != s.owner && e.Start <= s.issued:
		if s.fence == 0 {
			s.lowest = seen
		}
		return s.fence == 0 || seen <= s.fence
	case s.fence == 0:
		s.fence = seen
	}
	return s.fence == seen
}

// timed checks what is left of the record's lease or keep.
func (s record) timed(e *Event) bool {
	left, from, to := e.Record.LeaseLeft, s.leaseFrom, s.leaseTo
	if s.state != onlyonce.StateProcessing {
		if left != 0 {
			return false
		}
		left, from, to = e.Record.KeepLeft, s.keepFrom, s.keepTo
		if !s.ends {
			return left == 0
		}
	}
	return plus(int64(left), e.Slack+e.Lag) >= from-e.End && (to == forever || int64(left) <= plus(to-e.Start, e.Slack+e.Lag))
}
