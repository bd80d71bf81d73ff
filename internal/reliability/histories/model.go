//go:build linux

package histories

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A record is the state of the model: one command's record, and its business rows. The model
// has no clock. It knows that the store read its clock between a call and its return, and so
// it knows an interval in which each lease and keep ends. A call may take effect some time
// after the store read the clock.
type record struct {
	exists       bool
	state        onlyonce.State
	owner        string
	ownerUnknown bool // a person resolved the record: its owner is not that of any claim
	fingerprint  int
	attempt      int
	fence        int64 // 0: unknown, but at least lowest
	minFence     int64
	returned     int64 // when the claim with the fence returned: until then, calls may see a lower fence
	result       string
	errorText    string
	final        bool
	steps        string
	created      int64 // 0: unknown

	leaseFrom, leaseTo int64 // the lease ends in this interval
	expires            bool  // the settled record expires
	keepFrom, keepTo   int64 // in this interval

	gone             bool  // a call has found out that it has expired; a transaction that has begun before may go on from it
	lateFrom, lateTo int64 // in this interval, calls may see the record as expired although it was changed just before it expired

	maxFence int64  // the highest fence that was issued
	rows     string // sorted, each followed by a comma
}

// shortestKeep is the shortest time for which stores on servers keep a settled record.
const shortestKeep = 100 * time.Millisecond

const forever = math.MaxInt64

func add(t int64, d time.Duration) int64 {
	if t > forever-int64(d) {
		return forever
	}
	return t + int64(d)
}

// step returns the records that are possible after the event: none if the event contradicts
// the record.
func (s record) step(e *Event) []record {
	if e.Verdict == Nothing || e.Kind == Purge {
		return []record{s}
	}
	var after []record
	for _, form := range s.possible(e) {
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
		if !form.exists && s.exists && slices.Contains(after[before:], form) {
			seen := s
			seen.gone = !e.SeesExpired // another process may still see it
			after = append(after, seen)
		}
	}
	return after
}

// possible returns the records that are possible at the time of the event: a settled record may
// have expired.
func (s record) possible(e *Event) []record {
	if !s.exists || s.state == onlyonce.StateProcessing || !s.expires {
		return []record{s}
	}
	var all []record
	if e.Start <= add(s.keepTo, e.Slack+e.Lag) && (!s.gone || e.Kind == RunTx) {
		there := s
		there.gone = false
		all = append(all, there)
	}
	if e.End >= s.keepFrom-int64(e.Slack) {
		all = append(all, s.removed())
	}
	return all
}

// removed returns the record after it was deleted.
func (s record) removed() record {
	return record{maxFence: s.highest(), rows: s.rows}
}

// highest returns the highest fence that is known to have been issued.
func (s record) highest() int64 { return max(s.maxFence, s.fence, s.minFence) }

// mayHaveLapsed and mayBeAlive report whether the lease may have ended, and may still run, at
// the time of the event.
func (s record) mayHaveLapsed(e *Event) bool { return e.End >= s.leaseFrom-int64(e.Slack) }
func (s record) mayBeAlive(e *Event) bool    { return e.Start <= add(s.leaseTo, e.Slack+e.Lag) }

// claim returns the records that are possible after a claim.
func (s record) claim(e *Event) []record {
	if e.Record != nil && e.Record.Busy {
		return s.busy(e)
	}
	var after []record
	taken, rejected := s.claimable(e)
	if e.reverted {
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
		after = append(after, s.rejectedBy(e)...)
	}
	if s.exists && s.state == onlyonce.StateProcessing && s.heldBy(e.Owner) { // a higher fence may be issued to a claim that is repeated
		raised := s
		raised.maxFence = s.highest()
		raised.fence, raised.minFence, raised.returned = 0, raised.maxFence+1, e.End
		after = append(after, raised.rejectedBy(e)...)
	}
	return after
}

// rejectedBy returns the records that are possible after a claim that did not take the command.
func (s record) rejectedBy(e *Event) []record {
	if e.Verdict == Doubt {
		return []record{s}
	}
	return s.learned(e)
}

// claimable reports whether the event's claim may take the command, and whether it may be
// rejected.
func (s record) claimable(e *Event) (taken, rejected bool) {
	switch {
	case !s.exists:
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

func (s record) heldBy(owner string) bool { return !s.ownerUnknown && s.owner == owner }

// claimedBy returns the record after the event's claim took the command.
func (s record) claimedBy(e *Event) record {
	next := s
	if !s.exists {
		next = s.removed()
	}
	next.noteExpiry(e)
	next.exists, next.state, next.owner, next.ownerUnknown = true, onlyonce.StateProcessing, e.Owner, false
	next.attempt++
	if next.fingerprint == 0 {
		next.fingerprint = e.Fingerprint
	}
	next.maxFence = s.highest()
	next.fence, next.minFence, next.returned = 0, next.maxFence+1, e.End
	next.result, next.final, next.expires = "", false, false
	return next.leased(e)
}

// noteExpiry sets the interval in which calls may see the record as expired although it is being
// changed.
func (s *record) noteExpiry(e *Event) {
	s.lateFrom, s.lateTo = 0, 0
	if s.expires && s.state != onlyonce.StateProcessing {
		s.lateFrom, s.lateTo = s.keepFrom, e.End
	}
}

func (s record) leased(e *Event) record {
	s.leaseFrom, s.leaseTo = add(e.Start, e.Lease), add(e.End, e.Lease)
	return s
}

// held returns the record if the event's hold may match it, and reports whether it may also
// not match.
func (s record) held(e *Event) (held []record, other bool) {
	switch {
	case !s.exists || !s.heldBy(e.Owner):
		return nil, true
	case s.fence != 0:
		if s.fence != e.Fence {
			return nil, true
		}
		return []record{s}, false
	case e.Fence < s.minFence:
		return nil, true
	}
	other = true
	s.fence = e.Fence
	return []record{s}, other
}

// ifHeld returns the records that are possible after a call that needs a hold.
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

// settled returns the record after the event's settlement.
func (s record) settled(e *Event) record {
	if e.State == "" {
		return s.removed()
	}
	s.state, s.final = e.State, e.Final
	s.returned, s.leaseFrom, s.leaseTo = 0, 0, 0 // equal records must not differ in times that no longer matter
	s.result, s.errorText = e.resultAndError()
	s.expires = e.Keep > 0
	if s.expires {
		s.keepFrom, s.keepTo = add(e.Start, e.Keep), add(e.End, max(e.Keep, shortestKeep))
	}
	return s
}

func (s record) lookup(e *Event) []record {
	if (e.Verdict == NotFound) == s.exists && !s.seenExpired(e) {
		return nil
	}
	if !s.exists || e.Verdict == NotFound {
		return []record{s}
	}
	return s.learned(e)
}

// seenExpired reports whether the call may have seen the expired record from before a resolution
// or a takeover that had yet to commit.
func (s record) seenExpired(e *Event) bool {
	return e.Verdict == NotFound && e.Start <= add(s.lateTo, e.Lag) && e.End >= s.lateFrom-int64(e.Slack)
}

// learned returns the record with the values that a call has returned: none if they contradict
// the record.
func (s record) learned(e *Event) []record {
	r := e.Record
	if r == nil || !s.exists || r.Busy || r.Corrupt || r.State != s.state || r.Fingerprint != s.fingerprint || r.Attempt != s.attempt ||
		r.Result != s.result || r.Error != s.errorText || r.Final != s.final || r.Steps != s.steps {
		return nil
	}
	if !s.ownerUnknown && r.Owner != s.owner {
		return nil
	}
	if s.created == 0 {
		s.created = r.Created
	}
	if s.created != r.Created || !s.matchesTimes(e) || !s.matchesFence(e) {
		return nil
	}
	s.maxFence = max(s.maxFence, s.fence)
	return []record{s}
}

// matchesFence checks the fence that a call has returned. A store may raise a fence that it has
// not yet returned to the claim.
func (s *record) matchesFence(e *Event) bool {
	seen := e.Record.Fence
	if seen < s.minFence {
		return false
	}
	switch {
	case s.state == onlyonce.StateProcessing && e.Owner != s.owner && e.Start <= s.returned:
		if s.fence == 0 {
			s.minFence = seen
		}
		return s.fence == 0 || seen <= s.fence
	case s.fence == 0:
		s.fence = seen
	}
	return s.fence == seen
}

// matchesTimes checks the time that is left of the record's lease or keep.
func (s record) matchesTimes(e *Event) bool {
	left, from, to := e.Record.LeaseLeft, s.leaseFrom, s.leaseTo
	if s.state != onlyonce.StateProcessing {
		if left != 0 {
			return false
		}
		left, from, to = e.Record.KeepLeft, s.keepFrom, s.keepTo
		if !s.expires {
			return left == 0
		}
	}
	return add(int64(left), e.Slack+e.Lag) >= from-e.End && (to == forever || int64(left) <= add(to-e.Start, e.Slack+e.Lag))
}
