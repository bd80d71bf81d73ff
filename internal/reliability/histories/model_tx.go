//go:build linux

package histories

import (
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// runTx returns the records that are possible after a RunTx.
func (s record) runTx(e *Event) []record {
	if e.Record != nil && e.Record.Busy {
		return s.busy(e)
	}
	taken, rejected := s.claimable(e)
	var after []record
	if rejected && (e.Verdict == Done || e.Verdict == Doubt) { // the work of its function is rolled back
		after = append(after, s.rejectedBy(e)...)
	}
	switch e.Verdict {
	case Done:
		if taken && len(e.Fences) > 0 && e.Record != nil && e.Record.Owner == e.Owner {
			after = append(after, s.ranTx(e)...)
		}
	case Own, OwnLost:
		// Its settlement may have met a record, or a floor of the fences, that had changed.
		if e.Ending != Fails || e.overlapsChange || e.Verdict == OwnLost {
			after = append(after, s)
		}
		if e.Ending == Fails && e.Verdict == Own && taken {
			after = append(after, s.claimedBy(e).settled(e))
		}
	case Doubt:
		if taken && e.Ending == Commits {
			after = append(after, s.claimedBy(e).withRow(e.Row).settled(e))
		} else if taken && e.Ending == Fails {
			after = append(after, s.claimedBy(e).settled(e))
		} else if taken {
			after = append(after, s)
		}
	}
	return after
}

// busy returns the record after a call that found that a transaction runs the command. It may be
// a transaction of the same call, whose connection broke before its function ran: the server
// may not have noticed yet, and still hold the locks.
func (s record) busy(e *Event) []record {
	if own := e.Kind == RunTx && e.Record.Fingerprint == e.Fingerprint; e.overlapsRunTx || own {
		return []record{s}
	}
	return nil
}

// ranTx returns the record after a committed transaction.
func (s record) ranTx(e *Event) []record {
	next := s.claimedBy(e).withRow(e.Row)
	if e.State != "" {
		return next.settled(e).learned(e)
	}
	if e.Record.Fence < next.minFence {
		return nil
	}
	next.fence = e.Record.Fence
	return []record{next.removed()}
}

func (s record) withRow(row string) record {
	rows := append(strings.Split(strings.TrimSuffix(s.rows, ","), ","), row)
	if rows[0] == "" {
		rows = rows[1:]
	}
	s.rows = strings.Join(append(slices.Sorted(slices.Values(rows)), ""), ",")
	return s
}

// settleTx returns the records that are possible after a SettleTx.
func (s record) settleTx(e *Event) []record {
	if (e.Ending == GivesUp || e.Ending == Panicked) && (e.Verdict == Own || e.Verdict == Doubt) {
		return []record{s}
	}
	after := s.ifHeld(e, func(s record) (record, bool) {
		switch {
		case s.state != onlyonce.StateProcessing:
			return s, true
		case e.Ending == Fails:
			return s.settled(e), false
		}
		return s.withRow(e.Row).settled(e), false
	})
	if e.Ending == Fails && e.Verdict == Own && e.overlapsChange { // it was settled while the function ran
		after = append(after, s)
	}
	return after
}

// resolve returns the records that are possible after a resolution.
func (s record) resolve(e *Event) []record {
	if e.Verdict == NotFound {
		if s.exists && !s.seenExpired(e) {
			return nil
		}
		return []record{s}
	}
	if !s.exists {
		if e.Verdict == Doubt {
			return []record{s}
		}
		return nil
	}
	var after []record
	processing := s.state == onlyonce.StateProcessing
	same := s.state == e.SeenState && (s.fence == e.Fence && s.fence != 0 || s.fence == 0 && e.Fence >= s.minFence)
	raising := processing && e.Start <= s.returned // the fence that its claim returns may not be written yet
	other := s.fence == 0 || s.fence != e.Fence || raising || s.state != e.SeenState
	switch e.Verdict {
	case InFlight:
		if processing && s.mayBeAlive(e) {
			after = append(after, s)
		}
		return after
	case Lost:
		if other {
			after = append(after, s)
		}
		return after
	}
	if same && (!processing || s.mayHaveLapsed(e)) {
		after = append(after, s.resolved(e))
	}
	if e.Verdict == Doubt || s.ownerUnknown && s.matches(e) { // resolving again in the same way is no error
		after = append(after, s)
	}
	return after
}

// resolved returns the record after the event's resolution.
func (s record) resolved(e *Event) record {
	s.maxFence = max(s.maxFence, e.Fence)
	s.fence, s.minFence = 0, max(s.maxFence, s.minFence)
	s.owner, s.ownerUnknown = "", true
	s.noteExpiry(e)
	return s.settled(e)
}

// matches reports whether the record is equal to the event's settlement.
func (s record) matches(e *Event) bool {
	result, text := e.resultAndError()
	return s.state == e.State && s.final == e.Final && s.result == result && s.errorText == text
}
