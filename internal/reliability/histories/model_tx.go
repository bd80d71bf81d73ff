//go:build linux

package histories

import (
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// runTx is what a RunTx does to a record.
func (s record) runTx(e *Event) []record {
	if e.Record != nil && e.Record.Busy {
		return s.busy(e)
	}
	taken, rejected := s.claimable(e)
	var after []record
	if rejected && (e.Verdict == Done || e.Verdict == Doubt) { // what its function did is rolled back
		after = append(after, s.rejects(e)...)
	}
	switch e.Verdict {
	case Done:
		if taken && len(e.Handed) > 0 && e.Record != nil && e.Record.Owner == e.Owner {
			after = append(after, s.ranTx(e)...)
		}
	case Own, OwnLost:
		// What it would have recorded may have met a record, or a floor of the fences, that had changed.
		if e.Ending != Fails || e.crowded || e.Verdict == OwnLost {
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

// busy is the record as a call leaves it that was told that a transaction runs the command. It may
// be a transaction of the same call, whose connection broke before its function ran: the server
// may not have noticed yet that the locks of such a transaction are free.
func (s record) busy(e *Event) []record {
	if own := e.Kind == RunTx && e.Record.Fingerprint == e.Fingerprint; e.beside || own {
		return []record{s}
	}
	return nil
}

// ranTx is the record after a transaction that was committed.
func (s record) ranTx(e *Event) []record {
	next := s.claimedBy(e).withRow(e.Row)
	if e.State != "" {
		return next.settled(e).learned(e)
	}
	if e.Record.Fence < next.lowest {
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

// settleTx is what a SettleTx does to a record.
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
	if e.Ending == Fails && e.Verdict == Own && e.crowded { // it was settled while the function ran
		after = append(after, s)
	}
	return after
}

// resolve is what a resolution does to a record.
func (s record) resolve(e *Event) []record {
	if e.Verdict == NotFound {
		if s.there && !s.seenExpired(e) {
			return nil
		}
		return []record{s}
	}
	if !s.there {
		if e.Verdict == Doubt {
			return []record{s}
		}
		return nil
	}
	var after []record
	processing := s.state == onlyonce.StateProcessing
	same := s.state == e.Saw && (s.fence == e.Fence && s.fence != 0 || s.fence == 0 && e.Fence >= s.lowest)
	raising := processing && e.Start <= s.issued // it may not have the fence yet that its claim returns
	other := s.fence == 0 || s.fence != e.Fence || raising || s.state != e.Saw
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
	if e.Verdict == Doubt || s.nobodys && s.says(e) { // resolving again in the same way is no error
		after = append(after, s)
	}
	return after
}

// resolved is the record as a person decided.
func (s record) resolved(e *Event) record {
	s.top = max(s.top, e.Fence)
	s.fence, s.lowest = 0, max(s.top, s.lowest)
	s.owner, s.nobodys = "", true
	s.changesLate(e)
	return s.settled(e)
}

// says reports whether the record is what the event's settlement makes of one.
func (s record) says(e *Event) bool {
	result, text := e.texts()
	return s.state == e.State && s.final == e.Final && s.result == result && s.text == text
}
